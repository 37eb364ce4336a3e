/* libnvidia-ml.so.1: NVML's symbols over the device table. Calls read the table only.
 *
 * Contracts that callers rely on: outputs stay untouched on error and are written on success, a count that does not
 * suffice is answered with what would, one device has one handle, both widths of bus address are understood. */
#include "call.h"

/* -- start and stop ------------------------------------------------------------------------------------------------ */

static int users;

static nvmlReturn_t start(const char *call)
{
    if (table_attach())
        return DRIVER_NOT_LOADED;
    table_dawdle(nvml_library(), call);
    if (nvml_library()->code)
        return nvml_library()->code;
    users++;
    return OK;
}

int nvml_running(void) { return users > 0; }

EXPORT nvmlReturn_t nvmlInitWithFlags(uint flags) { (void)flags; return start(__func__); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return start(__func__); }
EXPORT nvmlReturn_t nvmlInit(void) { return start(__func__); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return OK;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case OK: return "The operation was successful";
    case UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
    case INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NOT_SUPPORTED: return "The requested operation is not available on target device";
    case NOT_FOUND: return "A query to find an object was unsuccessful";
    case INSUFFICIENT_SIZE: return "An input argument is not large enough";
    case DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
    case TIMEOUT: return "User provided timeout passed";
    case GPU_IS_LOST: return "The GPU has fallen off the bus or has otherwise become inaccessible";
    case RESET_REQUIRED: return "The GPU requires a reset before it can be used again";
    case IN_USE: return "The device is in use";
    case INSUFFICIENT_RESOURCES: return "Insufficient resources";
    case ARGUMENT_VERSION_MISMATCH: return "The version of the argument is not supported";
    default: return "Unknown Error";
    }
}

/* -- the system ---------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, uint room)
{
    SYSTEM_CALL;
    return copy_text(text, room, nvml_library()->driver, sizeof nvml_library()->driver);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, uint room)
{
    SYSTEM_CALL;
    return copy_text(text, room, nvml_library()->library, sizeof nvml_library()->library);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    SYSTEM_CALL;
    return version ? (*version = nvml_library()->runtime, OK) : INVALID_ARGUMENT;
}
ALIAS(nvmlSystemGetCudaDriverVersion, (int *version), nvmlSystemGetCudaDriverVersion_v2(version))

EXPORT nvmlReturn_t nvmlSystemGetProcessName(uint pid, char *name, uint room)
{
    SYSTEM_CALL;
    const struct Section *processes = &table_header->processes;
    for (uint at = 0; at < processes->room; at++) {
        struct ProcessRecord row;
        table_read(table_row(processes, at), &row, sizeof row);
        if (row.pid == pid && pid)
            return copy_text(name, room, row.name, sizeof row.name);
    }
    return NOT_FOUND;
}

/* -- finding devices ----------------------------------------------------------------------------------------------- */

/* NVIDIA's cards that NVML counts: present ones. A lost card is still counted. */
static int counted(const struct DeviceRecord *record)
{
    return record->vendor == NVIDIA && record->present && record->kind == 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(uint *count)
{
    SYSTEM_CALL;
    if (!count)
        return INVALID_ARGUMENT;
    uint found = 0;
    for (uint at = 0; at < table_header->devices.count; at++)
        found += counted(table_device(at));
    *count = found;
    return OK;
}
ALIAS(nvmlDeviceGetCount, (uint *count), nvmlDeviceGetCount_v2(count))

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *handle)
{
    SYSTEM_CALL;
    if (!handle)
        return INVALID_ARGUMENT;
    uint found = 0;
    for (uint at = 0; at < table_header->devices.count; at++) {
        const struct DeviceRecord *record = table_device(at);
        if (!counted(record) || found++ != index)
            continue;
        if (record->code)
            return record->code;
        *handle = record;
        return OK;
    }
    return INVALID_ARGUMENT;
}
ALIAS(nvmlDeviceGetHandleByIndex, (uint index, nvmlDevice_t *handle), nvmlDeviceGetHandleByIndex_v2(index, handle))

/* By uuid, serial or bus address: `same` says whether a record is meant. */
static nvmlReturn_t look_up(const char *text, nvmlDevice_t *handle, int (*same)(const struct DeviceRecord *, const char *))
{
    if (!text || !handle)
        return INVALID_ARGUMENT;
    for (uint at = 0; at < table_header->devices.count; at++) {
        const struct DeviceRecord *record = table_device(at);
        if (!counted(record) || !same(record, text))
            continue;
        if (record->code)
            return record->code;
        *handle = record;
        return OK;
    }
    return NOT_FOUND;
}

static int same_uuid(const struct DeviceRecord *record, const char *text) { return !strcmp(record->uuid, text); }
static int same_serial(const struct DeviceRecord *record, const char *text) { return !strcmp(record->serial, text); }

static int same_bus(const struct DeviceRecord *record, const char *text)
{
    uint domain, bus, device, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return 0;
    return record->domain == domain && record->bus == bus && record->device == device && record->function == function;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    SYSTEM_CALL;
    if (uuid && handle && !strncmp(uuid, "MIG-", 4))
        return mig_by_uuid(uuid, handle);
    return look_up(uuid, handle, same_uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *handle)
{
    SYSTEM_CALL;
    return look_up(serial, handle, same_serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *handle)
{
    SYSTEM_CALL;
    return look_up(bus, handle, same_bus);
}
ALIAS(nvmlDeviceGetHandleByPciBusId, (const char *bus, nvmlDevice_t *handle), nvmlDeviceGetHandleByPciBusId_v2(bus, handle))

/* -- what a device is ---------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *text, uint room)
{
    DEVICE_CALL;
    if (slice)
        return mig_name(&record, slice, text, room);
    return copy_text(text, room, record.name, sizeof record.name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *text, uint room)
{
    DEVICE_CALL;
    if (slice)
        return copy_text(text, room, slice->uuid, sizeof slice->uuid);
    return copy_text(text, room, record.uuid, sizeof record.uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t handle, char *text, uint room)
{
    DEVICE_CALL;
    return copy_text(text, room, record.serial, sizeof record.serial);
}

NUMBER_CALL(nvmlDeviceGetIndex, record.index)
NUMBER_CALL(nvmlDeviceGetMinorNumber, record.minor)
NUMBER_CALL(nvmlDeviceGetBrand, 14) /* NVML_BRAND_NVIDIA */
NUMBER_CALL(nvmlDeviceGetBoardId, record.domain << 16 | record.bus << 8 | record.device << 3)
NUMBER_CALL(nvmlDeviceGetPowerUsage, record.power_mw)
NUMBER_CALL(nvmlDeviceGetEnforcedPowerLimit, record.power_limit_mw)
NUMBER_CALL(nvmlDeviceGetPowerManagementLimit, record.power_limit_mw)
NUMBER_CALL(nvmlDeviceGetNumGpuCores, record.cores * 128)

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, PciInfo *info)
{
    DEVICE_CALL;
    if (!info)
        return INVALID_ARGUMENT;
    pci_info(&record, info);
    return OK;
}
ALIAS(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t handle, PciInfo *info), nvmlDeviceGetPciInfo_v3(handle, info))

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, PciInfo *info)
{
    DEVICE_CALL; /* v1 of the structure ends before busId */
    PciInfo whole;
    if (!info)
        return INVALID_ARGUMENT;
    pci_info(&record, &whole);
    memcpy(info, &whole, offsetof(PciInfo, pciSubSystemId));
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    DEVICE_CALL;
    if (!major || !minor)
        return INVALID_ARGUMENT;
    *major = record.capability_major;
    *minor = record.capability_minor;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, uint *architecture)
{
    DEVICE_CALL;
    if (!architecture)
        return INVALID_ARGUMENT;
    int major = record.capability_major, minor = record.capability_minor;
    *architecture = major >= 10 ? 10                 /* NVML_DEVICE_ARCH_BLACKWELL */
                    : major == 9 ? 9                 /* HOPPER */
                    : major == 8 ? (minor == 9 ? 8 : 7) /* ADA, AMPERE */
                    : major == 7 ? (minor == 5 ? 6 : 5) /* TURING, VOLTA */
                                 : major > 3 ? (uint)major - 2 : 2; /* PASCAL, MAXWELL, KEPLER */
    return OK;
}

/* -- what it does -------------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, Memory *memory)
{
    DEVICE_CALL;
    if (!memory)
        return INVALID_ARGUMENT;
    /* v1 counts what the driver keeps as used. */
    ull total = slice ? slice->memory : record.memory_total, kept = slice ? 0 : record.memory_reserved;
    ull used = (slice ? slice->memory_used : record.memory_used) + kept;
    used = used > total ? total : used;
    *memory = (Memory){total, total - used, used};
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, Memory_v2 *memory)
{
    DEVICE_CALL;
    if (!memory)
        return INVALID_ARGUMENT;
    if (memory->version != VERSION(Memory_v2, 2))
        return ARGUMENT_VERSION_MISMATCH;
    ull total = slice ? slice->memory : record.memory_total, kept = slice ? 0 : record.memory_reserved;
    ull used = slice ? slice->memory_used : record.memory_used;
    used = used > total - kept ? total - kept : used;
    memory->total = total;
    memory->reserved = kept;
    memory->used = used;
    memory->free = total - kept - used;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, Utilization *use)
{
    DEVICE_CALL;
    if (!use)
        return INVALID_ARGUMENT;
    if (slice || record.slice_mode)
        return NOT_SUPPORTED;
    *use = (Utilization){record.core_use, record.memory_use};
    return OK;
}

/* The processes of a device, into `fill` one by one; returns their number. */
static uint each_process(nvmlDevice_t handle, const struct SliceRecord *slice, void *out, uint room,
                         void (*fill)(void *, uint, const struct ProcessRecord *))
{
    uint found = 0;
    uint32_t own = record_number(handle, slice);
    for (uint at = 0; at < table_header->processes.room; at++) {
        struct ProcessRecord row;
        table_read(table_row(&table_header->processes, at), &row, sizeof row);
        if (!row.pid || row.device != own || (slice && row.slice != slice->id))
            continue;
        if (out && found < room)
            fill(out, found, &row);
        found++;
    }
    return found;
}

static void fill_v1(void *out, uint at, const struct ProcessRecord *row)
{
    ((ProcessInfo_v1 *)out)[at] = (ProcessInfo_v1){row->pid, row->used};
}

static void fill_v3(void *out, uint at, const struct ProcessRecord *row)
{
    ((ProcessInfo *)out)[at] = (ProcessInfo){row->pid, row->used, ~0u, ~0u};
}

static void fill_sample(void *out, uint at, const struct ProcessRecord *row)
{
    ((ProcessUtilizationSample *)out)[at] =
        (ProcessUtilizationSample){row->pid, row->sampled_us, row->sm, row->memory, row->encoder, row->decoder};
}

static nvmlReturn_t processes(const char *call, nvmlDevice_t handle, uint *count, void *out, int v1)
{
    struct DeviceRecord record;
    const struct SliceRecord *slice;
    nvmlReturn_t code = nvml_enter(call, handle, &record, &slice);
    if (code)
        return code;
    if (!count || (*count && !out))
        return INVALID_ARGUMENT;
    uint found = each_process(handle, slice, 0, 0, fill_v3);
    if (found > *count) {
        *count = found;
        return INSUFFICIENT_SIZE;
    }
    *count = each_process(handle, slice, out, *count, v1 ? fill_v1 : fill_v3);
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, uint *count, ProcessInfo *out)
{
    return processes(__func__, handle, count, out, 0);
}
ALIAS(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t handle, uint *count, ProcessInfo *out),
      nvmlDeviceGetComputeRunningProcesses_v3(handle, count, out))

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, uint *count, ProcessInfo_v1 *out)
{
    return processes(__func__, handle, count, out, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, uint *count, ProcessInfo *out)
{
    DEVICE_CALL;
    (void)out;
    return count ? (*count = 0, OK) : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, ProcessUtilizationSample *out, uint *count,
                                                    ull since)
{
    DEVICE_CALL;
    if (!count)
        return INVALID_ARGUMENT;
    if (slice || record.slice_mode)
        return NOT_SUPPORTED;
    uint found = each_process(handle, 0, 0, 0, fill_sample);
    if (!out) { /* a call without room always has this answer, even without samples */
        *count = found;
        return INSUFFICIENT_SIZE;
    }
    if (!found)
        return NOT_FOUND;
    if (found > *count) {
        *count = found;
        return INSUFFICIENT_SIZE;
    }
    *count = each_process(handle, 0, out, *count, fill_sample);
    uint kept = 0;
    for (uint at = 0; at < *count; at++)
        if (out[at].timeStamp > since)
            out[kept++] = out[at];
    *count = kept;
    return kept ? OK : NOT_FOUND;
}

/* -- heat, power, faults ------------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, uint sensor, uint *celsius)
{
    DEVICE_CALL;
    if (!celsius || sensor)
        return INVALID_ARGUMENT;
    *celsius = record.temperature;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, uint which, uint *celsius)
{
    DEVICE_CALL;
    if (!celsius)
        return INVALID_ARGUMENT;
    if (which > 1)
        return NOT_SUPPORTED;
    *celsius = which ? record.slowdown_temperature : record.shutdown_temperature;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, ull *reasons)
{
    DEVICE_CALL;
    return reasons ? (*reasons = record.throttle, OK) : INVALID_ARGUMENT;
}
ALIAS(nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t handle, ull *reasons),
      nvmlDeviceGetCurrentClocksEventReasons(handle, reasons))

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, uint *now, uint *pending)
{
    DEVICE_CALL;
    if (!now || !pending)
        return INVALID_ARGUMENT;
    *now = *pending = record.ecc_mode;
    return OK;
}

static nvmlReturn_t ecc(const struct DeviceRecord *record, uint type, uint counter, ull *count)
{
    if (!count || type > 1 || counter > 1)
        return INVALID_ARGUMENT;
    if (!record->ecc_mode)
        return NOT_SUPPORTED;
    *count = counter ? (type ? record->ecc_uncorrected_ever : record->ecc_corrected_ever)
                     : (type ? record->ecc_uncorrected : record->ecc_corrected);
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, uint type, uint counter, ull *count)
{
    DEVICE_CALL;
    return ecc(&record, type, counter, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, uint type, uint counter, uint location, ull *count)
{
    DEVICE_CALL;
    if (location != 2) /* the table has DRAM only */
        return NOT_SUPPORTED;
    return ecc(&record, type, counter, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, uint *corrected, uint *uncorrected, uint *pending,
                                              uint *failed)
{
    DEVICE_CALL;
    if (!corrected || !uncorrected || !pending || !failed)
        return INVALID_ARGUMENT;
    *corrected = record.remapped[0];
    *uncorrected = record.remapped[1];
    *pending = record.remapped[2];
    *failed = record.remapped[3];
    return OK;
}

/* Fields: double-bit errors, remapped rows, link count, recovery action, power now. Each has its own return code. */
static nvmlReturn_t field(const struct DeviceRecord *record, FieldValue *value)
{
    enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
    value->valueType = UNSIGNED_INT;
    switch (value->fieldId) {
    case 4: value->valueType = UNSIGNED_LONG_LONG; value->value.ull_ = record->ecc_uncorrected; return OK;
    case 6: value->valueType = UNSIGNED_LONG_LONG; value->value.ull_ = record->ecc_uncorrected_ever; return OK;
    case 91: value->value.ui = record->link_count; return OK;
    case 142: value->value.ui = record->remapped[0]; return OK;
    case 143: value->value.ui = record->remapped[1]; return OK;
    case 144: value->value.ui = record->remapped[2]; return OK;
    case 145: value->value.ui = record->remapped[3]; return OK;
    case 185: case 186: value->value.ui = record->power_mw; return OK;
    case 230: value->value.ui = record->recovery_action; return OK;
    default: return NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, FieldValue *values)
{
    DEVICE_CALL;
    if (!values || count < 1)
        return INVALID_ARGUMENT;
    for (int at = 0; at < count; at++)
        values[at].nvmlReturn = field(&record, &values[at]);
    return OK;
}
