/* libcndev.so: CNDEV over the device table. A device is its index; memory is in MiB, sMLU memory in bytes. */
#include <stdlib.h>

#include "cndev_call.h"

static int users;

int cndev_enter(const char *call)
{
    if (!users)
        return UNINITIALIZED;
    table_dawdle(library(), call);
    return OK;
}

int cndev_enter_card(const char *call, Dev dev, struct DeviceRecord *record, unsigned int *at)
{
    int code = cndev_enter(call);
    if (code)
        return code;
    for (*at = 0; *at < table_header->devices.count; ++*at) {
        const struct DeviceRecord *one = table_device(*at);
        if (!is_card(one) || one->index != dev)
            continue;
        table_read(one, record, sizeof *record);
        if (record->delay_ms)
            table_sleep_ms(record->delay_ms);
        return record->code;
    }
    return INVALID_DEVICE;
}

/* -- start --------------------------------------------------------------------------------------------------------- */

EXPORT int cndevInit(int reserved)
{
    (void)reserved;
    if (table_attach())
        return NO_DRIVER;
    table_dawdle(library(), __func__);
    if (library()->code)
        return library()->code;
    users++;
    return OK;
}

EXPORT int cndevRelease(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return OK;
}

EXPORT const char *cndevGetErrorString(int code)
{
    static const char *const words[] = {
        "Success", "No driver", "Driver version too low", "Unsupported API version", "API uninitialized",
        "Invalid argument", "Invalid device id", "Unknown error", "Out of memory", "Insufficient space",
        "Not supported", "Invalid link", "No devices", "No permission", "Not found", "In use", "Duplicate", "Timeout",
        "In problem"};
    return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code] : "Unknown error";
}

/* -- cards --------------------------------------------------------------------------------------------------------- */

EXPORT int cndevGetDeviceCount(CardInfo *out)
{
    int code = cndev_enter(__func__);
    if (code)
        return code;
    VERSIONED(out);
    out->number = 0;
    for (unsigned int at = 0; at < table_header->devices.count; at++)
        out->number += is_card(table_device(at));
    return OK;
}

/* A card keeps its number when another is removed; the index counts present cards. */
EXPORT int cndevGetDeviceHandleByIndex(int index, Dev *handle)
{
    int code = cndev_enter(__func__);
    if (code || !handle)
        return code ? code : INVALID_ARGUMENT;
    for (unsigned int at = 0; at < table_header->devices.count; at++)
        if (is_card(table_device(at)) && index-- == 0) {
            *handle = table_device(at)->index;
            return OK;
        }
    return INVALID_DEVICE;
}

EXPORT int cndevGetUUID(Uuid *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    memset(out->uuid, 0, sizeof out->uuid);
    memcpy(out->uuid, record.uuid, strnlen(record.uuid, 36)); /* the bare 36 characters, without MLU- */
    out->ncs = record.guid;
    return OK;
}

EXPORT int cndevGetCardSN(CardSN *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    out->sn = strtoll(record.serial, 0, 10);
    out->motherboard = 0;
    return OK;
}

EXPORT const char *cndevGetCardNameStringByDevId(Dev dev)
{
    static char name[96];
    struct DeviceRecord record;
    unsigned int at;
    if (cndev_enter_card(__func__, dev, &record, &at))
        return "Unknown";
    memcpy(name, record.name, sizeof name);
    return name;
}

EXPORT int cndevGetVersionInfo(VersionInfo *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    unsigned int mcu[3] = {1, 1, 4};
    memcpy(out->mcu, mcu, sizeof mcu);
    if (sscanf(library()->driver, "%u.%u.%u", &out->driver[0], &out->driver[1], &out->driver[2]) != 3)
        return UNKNOWN;
    return OK;
}

NUMBER_CALL(cndevGetCardName, record.model_code)
NUMBER_CALL(cndevGetNUMANodeIdByDevId, record.numa)
NUMBER_CALL(cndevGetComputeMode, 0)
NUMBER_CALL(cndevGetSMLUMode, record.slice_mode)
NUMBER_CALL(cndevGetMimMode, 0)

EXPORT int cndevGetPCIeInfoV2(PCIeInfoV2 *out, Dev dev)
{
    CARD_CALL;
    if (!out)
        return INVALID_ARGUMENT;
    *out = (PCIeInfoV2){
        .subsystem = record.pci_subsystem >> 16, .device = record.pci_id >> 16,
        .vendor = (uint16_t)record.pci_id, .subvendor = (uint16_t)record.pci_subsystem, .domain = record.domain,
        .bus = record.bus, .device_id = record.device, .function = record.function, .slot = (uint16_t)record.minor};
    return OK;
}

/* -- what a card does ---------------------------------------------------------------------------------------------- */

EXPORT int cndevGetMemoryUsageV2(MemoryInfoV2 *out, Dev dev)
{
    CARD_CALL;
    if (!out)
        return INVALID_ARGUMENT;
    memset(out, 0, sizeof *out);
    out->total = (int64_t)(record.memory_total >> 20);
    out->used = (int64_t)(record.memory_used >> 20);
    out->reserved = (int64_t)(record.memory_reserved >> 20);
    out->global_memory = record.memory_total >> 20;
    return OK;
}

EXPORT int cndevGetDeviceUtilizationInfo(UtilizationInfo *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    memset(out->core, 0, sizeof out->core);
    out->average = (int)record.core_use;
    for (unsigned int core = 0; core < record.cores && core < 80; core++)
        out->core[core] = (int)record.core_use;
    return OK;
}

EXPORT int cndevGetProcessInfo(unsigned int *count, ProcessInfo *out, Dev dev)
{
    CARD_CALL;
    if (!count || (*count && !out))
        return INVALID_ARGUMENT;
    if (*count && out->version != VERSION_6)
        return UNSUPPORTED_VERSION;
    unsigned int found = 0;
    for (unsigned int row = 0; row < table_header->processes.room; row++) {
        struct ProcessRecord process;
        table_read(table_row(&table_header->processes, row), &process, sizeof process);
        if (!process.pid || process.device != at)
            continue;
        if (found < *count) /* KiB */
            out[found] = (ProcessInfo){VERSION_6, process.pid, process.used >> 10, process.used >> 10};
        found++;
    }
    int fits = found <= *count;
    *count = found;
    return fits ? OK : SPACE_TOO_SMALL;
}

EXPORT int cndevGetTemperatureInfo(TemperatureInfo *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    memset((char *)out + sizeof out->version, 0, sizeof *out - sizeof out->version);
    out->board = out->chip = out->memory = record.temperature;
    return OK;
}

EXPORT int cndevGetECCInfo(ECCInfo *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    memset(out->counter, 0, sizeof out->counter);
    out->counter[0] = record.ecc_corrected;
    out->counter[1] = record.ecc_uncorrected;
    return OK;
}

EXPORT int cndevGetCardHealthState(CardHealthState *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    out->health = (int)record.health;
    out->device_state = (int)record.health;
    out->driver_state = (int)record.driver_state;
    return OK;
}
