/* What every stand-in library does first: find the table that lies beside it, map it, read records whole.
 *
 * The table is found through dladdr: one directory holds library and table, so copying or mounting the directory is
 * all it takes. A table of another layout is refused. Nothing here decides anything. */
#ifndef ATTACH_H
#define ATTACH_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "table.h"

#define EXPORT __attribute__((visibility("default")))

#pragma GCC visibility push(hidden)

extern struct Header *table_header; /* null until table_attach has worked */

/* Map the table beside this library; 0 if that worked or had been done, -1 if there is none that fits. */
int table_attach(void);

/* Copy a record so that it is from one moment: its lock is even and has not moved meanwhile. */
void table_read(const void *record, void *copy, size_t bytes);

void table_sleep_ms(uint32_t milliseconds);

/* What a slow or hanging library does before it answers; `name` is the call's own name. */
void table_dawdle(const struct Library *library, const char *name);

/* Ask the table's writer for a change and wait for its answer, at most two seconds; -1: nobody answers. */
int table_ask(uint32_t operation, uint32_t device, const uint64_t *arguments, int count, const char *text,
              struct Mailbox *answer);

#pragma GCC visibility pop

static inline const struct DeviceRecord *table_device(uint32_t at)
{
    return (const struct DeviceRecord *)((const char *)table_header + table_header->devices.offset) + at;
}

/* One record of a section. */
static inline const void *table_row(const struct Section *section, uint64_t at)
{
    return (const char *)table_header + section->offset + section->stride * at;
}

#endif
