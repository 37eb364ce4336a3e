/* Shared by all stand-in libraries: finds the table beside the library, maps it, and reads records consistently.
 *
 * The table is found through dladdr: one directory holds library and table, so copying or mounting the directory is
 * all it takes. A table of another layout is refused. */
#ifndef ATTACH_H
#define ATTACH_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "table.h"

#define EXPORT __attribute__((visibility("default")))

#pragma GCC visibility push(hidden)

extern struct Header *table_header; /* null until table_attach succeeds */

/* Map the table beside this library, once. 0: mapped; -1: there is no table with this layout. */
int table_attach(void);

/* Copy a record consistently: its lock is even, and the same before and after. */
void table_read(const void *record, void *copy, size_t bytes);

void table_sleep_ms(uint32_t milliseconds);

/* Apply the library's delay or hang before a call; `name` is the name of the call. */
void table_dawdle(const struct Library *library, const char *name);

/* Request a change from the table's writer and wait for the answer for at most two seconds; -1: no answer. */
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
