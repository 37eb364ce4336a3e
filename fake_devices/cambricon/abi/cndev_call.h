/* Shared by the CNDEV files: start of a call, record of a device, the caller's version. */
#ifndef CNDEV_CALL_H
#define CNDEV_CALL_H

#include "attach.h"
#include "cndev.h"

enum { CAMBRICON = 2, STEP_MS = 10 };

#pragma GCC visibility push(hidden)

/* Start of a call: check that the library is started, apply delays. Not 0: return it. */
int cndev_enter(const char *call);

/* Begin a call on a card and copy its record; its number in the table goes to `at`. */
int cndev_enter_card(const char *call, Dev dev, struct DeviceRecord *record, unsigned int *at);

#pragma GCC visibility pop

static inline const struct Library *library(void) { return &table_header->libraries[CAMBRICON]; }

static inline int is_card(const struct DeviceRecord *record)
{
    return record->vendor == CAMBRICON && record->kind == 0 && record->present;
}

#define CARD_CALL                                                                                                      \
    struct DeviceRecord record;                                                                                        \
    unsigned int at;                                                                                                   \
    do {                                                                                                               \
        int entered = cndev_enter_card(__func__, dev, &record, &at);                                                         \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
        (void)at;                                                                                                      \
    } while (0)

/* Check the version of a caller's structure: 6. */
#define VERSIONED(out)                                                                                                 \
    do {                                                                                                               \
        if (!(out))                                                                                                    \
            return INVALID_ARGUMENT;                                                                                   \
        if ((out)->version != VERSION_6)                                                                               \
            return UNSUPPORTED_VERSION;                                                                                \
    } while (0)

#define NUMBER_CALL(name, field)                                                                                       \
    EXPORT int name(Number *out, Dev dev)                                                                              \
    {                                                                                                                  \
        CARD_CALL;                                                                                                     \
        VERSIONED(out);                                                                                                \
        out->value = (int)(field);                                                                                     \
        return OK;                                                                                                     \
    }

#endif
