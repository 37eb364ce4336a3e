/* Shared by the NVML files: start of a call, text output, record of a handle. */
#ifndef CALL_H
#define CALL_H

#include "attach.h"
#include "nvml.h"

enum { NVIDIA = 0 };

#pragma GCC visibility push(hidden)
int nvml_running(void);
nvmlReturn_t nvml_enter(const char *call, nvmlDevice_t handle, struct DeviceRecord *record,
                        const struct SliceRecord **slice);
nvmlReturn_t mig_by_uuid(const char *uuid, nvmlDevice_t *handle);
nvmlReturn_t mig_name(const struct DeviceRecord *record, const struct SliceRecord *slice, char *text, uint room);
#pragma GCC visibility pop

static inline const struct Library *nvml_library(void) { return &table_header->libraries[NVIDIA]; }

/* Position of a handle's device record; for a MIG device that of its card. */
static inline uint32_t record_number(nvmlDevice_t handle, const struct SliceRecord *slice)
{
    if (slice)
        return slice->device;
    return (uint32_t)(((const char *)handle - (const char *)table_header - table_header->devices.offset) /
                      table_header->devices.stride);
}

static inline nvmlReturn_t copy_text(char *out, uint room, const char *text, size_t longest)
{
    size_t length = strnlen(text, longest);
    if (!out)
        return INVALID_ARGUMENT;
    if (room <= length)
        return INSUFFICIENT_SIZE;
    memcpy(out, text, length);
    out[length] = 0;
    return OK;
}

static inline void pci_info(const struct DeviceRecord *record, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", record->domain & 0xffff,
             record->bus & 0xff, record->device & 0x1f, record->function & 7);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.%X", record->domain, record->bus, record->device,
             record->function);
    info->domain = record->domain;
    info->bus = record->bus;
    info->device = record->device;
    info->pciDeviceId = record->pci_id;
    info->pciSubSystemId = record->pci_subsystem;
}

#define SYSTEM_CALL                                                                                                    \
    do {                                                                                                               \
        if (!nvml_running())                                                                                           \
            return UNINITIALIZED;                                                                                      \
        table_dawdle(nvml_library(), __func__);                                                                        \
    } while (0)

#define DEVICE_CALL                                                                                                    \
    struct DeviceRecord record;                                                                                        \
    const struct SliceRecord *slice;                                                                                   \
    do {                                                                                                               \
        nvmlReturn_t entered = nvml_enter(__func__, handle, &record, &slice);                                          \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
        (void)record, (void)slice;                                                                                     \
    } while (0)

#define NUMBER_CALL(name, value)                                                                                       \
    EXPORT nvmlReturn_t name(nvmlDevice_t handle, uint *out)                                                           \
    {                                                                                                                  \
        DEVICE_CALL;                                                                                                   \
        return out ? (*out = (uint)(value), OK) : INVALID_ARGUMENT;                                                    \
    }

#define ALIAS(name, parameters, call)                                                                                  \
    EXPORT nvmlReturn_t name parameters { return call; }

#endif
