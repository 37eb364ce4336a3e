/* Shared by the DCMI files: start of a call, record of a chip. */
#ifndef DCMI_CALL_H
#define DCMI_CALL_H

#include "attach.h"
#include "dcmi.h"

enum { HUAWEI = 1, STEP_MS = 10 };

#pragma GCC visibility push(hidden)

extern int dcmi_started;

/* Start of a call: check that the library is started, apply delays. Not 0: return it. */
int dcmi_enter(const char *call);

/* Begin a call on a chip and copy its record; its number in the table goes to `at`. */
int dcmi_enter_chip(const char *call, int card, int device, struct DeviceRecord *record, unsigned int *at);

#pragma GCC visibility pop

static inline const struct Library *library(void) { return &table_header->libraries[HUAWEI]; }

static inline int is_chip(const struct DeviceRecord *record)
{
    return record->vendor == HUAWEI && record->kind == 0 && record->present;
}

#define CHIP_CALL                                                                                                      \
    struct DeviceRecord record;                                                                                        \
    unsigned int at;                                                                                                   \
    do {                                                                                                               \
        int entered = dcmi_enter_chip(__func__, card, device, &record, &at);                                                \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
        (void)at;                                                                                                      \
    } while (0)

#endif
