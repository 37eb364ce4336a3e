/* Shared by the ROCm SMI files: start of a call, record of a device. */
#ifndef ROCM_SMI_CALL_H
#define ROCM_SMI_CALL_H

#include "attach.h"
#include "rocm_smi.h"

enum { AMD = 4, STEP_MS = 10, MAX_DEVICES = 64, FILE_ERROR = 3 };

#pragma GCC visibility push(hidden)

extern uint32_t rsmi_count;                  /* devices found by rsmi_init; the list is fixed until the next one */
extern uint32_t rsmi_positions[MAX_DEVICES]; /* index → position in the table */

/* Start of a call: check that the library is started, apply delays. Not 0: return it. */
int rsmi_enter(const char *call);

/* Begin a call on a device and copy its record; its position in the table goes to `at`. */
int rsmi_enter_device(const char *call, uint32_t index, struct DeviceRecord *record, uint32_t *at);

#pragma GCC visibility pop

static inline const struct Library *library(void) { return &table_header->libraries[AMD]; }

#define DEVICE_CALL(out)                                                                                               \
    struct DeviceRecord record;                                                                                        \
    uint32_t at;                                                                                                       \
    do {                                                                                                               \
        int entered = rsmi_enter_device(__func__, index, &record, &at);                                                \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
        if (!(out))                                                                                                    \
            return INVALID_ARGS;                                                                                       \
        (void)at;                                                                                                      \
    } while (0)

#define NUMBER_CALL(name, type, value)                                                                                 \
    EXPORT int name(uint32_t index, type *out)                                                                         \
    {                                                                                                                  \
        DEVICE_CALL(out);                                                                                              \
        *out = (type)(value);                                                                                          \
        return SUCCESS;                                                                                                \
    }

#endif
