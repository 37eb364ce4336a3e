/* librocm_smi64.so: ROCm SMI over the device table. A device is its place in the list that rsmi_init made; a device
 * that leaves the machine later stays in the list, and its calls fail as reads of its sysfs files do. */
#include <stdlib.h>

#include "rocm_smi_call.h"

uint32_t rsmi_count;
uint32_t rsmi_positions[MAX_DEVICES];
static int users;

int rsmi_enter(const char *call)
{
    if (!users)
        return INIT_ERROR;
    table_dawdle(library(), call);
    return SUCCESS;
}

int rsmi_enter_device(const char *call, uint32_t index, struct DeviceRecord *record, uint32_t *at)
{
    int code = rsmi_enter(call);
    if (code)
        return code;
    if (index >= rsmi_count)
        return INVALID_ARGS;
    *at = rsmi_positions[index];
    table_read(table_device(*at), record, sizeof *record);
    if (record->delay_ms)
        table_sleep_ms(record->delay_ms);
    return record->present ? record->code : FILE_ERROR;
}

static int copy_text(const char *text, size_t room, char *out, size_t length)
{
    size_t bytes = strnlen(text, room);
    if (!out || !length)
        return INVALID_ARGS;
    snprintf(out, length, "%.*s", (int)bytes, text);
    return bytes < length ? SUCCESS : INSUFFICIENT_SIZE;
}

/* -- start --------------------------------------------------------------------------------------------------------- */

EXPORT int rsmi_init(uint64_t flags)
{
    (void)flags;
    if (table_attach())
        return INIT_ERROR;
    table_dawdle(library(), __func__);
    if (library()->code)
        return library()->code;
    if (users++)
        return SUCCESS;
    rsmi_count = 0;
    for (uint32_t at = 0; at < table_header->devices.count && rsmi_count < MAX_DEVICES; at++) {
        const struct DeviceRecord *record = table_device(at);
        if (record->vendor == AMD && record->kind == 0 && record->present)
            rsmi_positions[rsmi_count++] = at;
    }
    return SUCCESS;
}

EXPORT int rsmi_shut_down(void)
{
    if (!users)
        return INIT_ERROR;
    users--;
    return SUCCESS;
}

EXPORT int rsmi_status_string(int status, const char **text)
{
    if (!text)
        return INVALID_ARGS;
    *text = status == SUCCESS ? "RSMI_STATUS_SUCCESS" : "RSMI_STATUS_ERROR";
    return SUCCESS;
}

EXPORT int rsmi_version_get(Version *out)
{
    if (!out || table_attach())
        return INVALID_ARGS;
    *out = (Version){.build = "stand-in"};
    return sscanf(library()->library, "%u.%u.%u", &out->major, &out->minor, &out->patch) == 3 ? SUCCESS : NO_DATA;
}

EXPORT int rsmi_version_str_get(int component, char *out, uint32_t length)
{
    int code = rsmi_enter(__func__);
    if (code || component)
        return code ? code : INVALID_ARGS;
    return copy_text(library()->driver, sizeof library()->driver, out, length);
}

EXPORT int rsmi_num_monitor_devices(uint32_t *out)
{
    int code = rsmi_enter(__func__);
    if (code || !out)
        return code ? code : INVALID_ARGS;
    *out = rsmi_count;
    return SUCCESS;
}

/* -- identity ------------------------------------------------------------------------------------------------------ */

EXPORT int rsmi_dev_name_get(uint32_t index, char *out, size_t length)
{
    DEVICE_CALL(out);
    return copy_text(record.name, sizeof record.name, out, length);
}

EXPORT int rsmi_dev_serial_number_get(uint32_t index, char *out, uint32_t length)
{
    DEVICE_CALL(out);
    return copy_text(record.serial, sizeof record.serial, out, length);
}

EXPORT int rsmi_dev_pci_id_get(uint32_t index, uint64_t *out)
{
    DEVICE_CALL(out);
    *out = (uint64_t)record.domain << 32 | record.bus << 8 | record.device << 3 | record.function;
    return SUCCESS;
}

NUMBER_CALL(rsmi_dev_id_get, uint16_t, record.pci_id >> 16)
NUMBER_CALL(rsmi_dev_vendor_id_get, uint16_t, record.pci_id)
NUMBER_CALL(rsmi_dev_subsystem_id_get, uint16_t, record.pci_subsystem >> 16)
NUMBER_CALL(rsmi_dev_drm_render_minor_get, uint32_t, 128 + record.minor)
NUMBER_CALL(rsmi_topo_numa_affinity_get, int32_t, record.numa)
NUMBER_CALL(rsmi_dev_unique_id_get, uint64_t, strtoull(record.uuid + sizeof "GPU-" - 1, 0, 16))

/* -- what a device does -------------------------------------------------------------------------------------------- */

EXPORT int rsmi_dev_memory_total_get(uint32_t index, int kind, uint64_t *out)
{
    DEVICE_CALL(out);
    if (kind)
        return NOT_SUPPORTED;
    *out = record.memory_total;
    return SUCCESS;
}

EXPORT int rsmi_dev_memory_usage_get(uint32_t index, int kind, uint64_t *out)
{
    DEVICE_CALL(out);
    if (kind)
        return NOT_SUPPORTED;
    *out = record.memory_used;
    return SUCCESS;
}

NUMBER_CALL(rsmi_dev_busy_percent_get, uint32_t, record.core_use)
NUMBER_CALL(rsmi_dev_memory_busy_percent_get, uint32_t, record.memory_use)

EXPORT int rsmi_dev_temp_metric_get(uint32_t index, uint32_t sensor, int metric, int64_t *out)
{
    DEVICE_CALL(out);
    if (sensor > TEMP_MEMORY)
        return NOT_SUPPORTED;
    int32_t celsius = metric == TEMP_CURRENT     ? record.temperature
                      : metric == TEMP_CRITICAL  ? record.slowdown_temperature
                      : metric == TEMP_EMERGENCY ? record.shutdown_temperature
                                                 : -1;
    *out = celsius * 1000;
    return celsius < 0 ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int rsmi_dev_power_get(uint32_t index, uint64_t *out, int *kind)
{
    DEVICE_CALL(out);
    if (!kind)
        return INVALID_ARGS;
    *out = (uint64_t)record.power_mw * 1000;
    *kind = POWER_CURRENT;
    return SUCCESS;
}

EXPORT int rsmi_dev_power_cap_get(uint32_t index, uint32_t sensor, uint64_t *out)
{
    DEVICE_CALL(out);
    *out = (uint64_t)record.power_limit_mw * 1000;
    return sensor ? NOT_SUPPORTED : SUCCESS;
}

/* Memory errors are the UMC block's; any other block has one error while it is the device's present fault. */
EXPORT int rsmi_dev_ecc_count_get(uint32_t index, uint64_t block, ErrorCount *out)
{
    DEVICE_CALL(out);
    if (!block || block & (block - 1) || block > BLOCK_LAST)
        return INVALID_ARGS;
    if (!record.ecc_mode)
        return NOT_SUPPORTED;
    *out = (ErrorCount){0, record.error_count && record.error_codes[0] == block};
    if (block == BLOCK_UMC)
        *out = (ErrorCount){record.ecc_corrected, record.ecc_uncorrected};
    return SUCCESS;
}

NUMBER_CALL(rsmi_dev_ecc_enabled_get, uint64_t, record.ecc_mode ? 2 * BLOCK_LAST - 1 : 0)

/* -- processes ----------------------------------------------------------------------------------------------------- */

static int listed(uint32_t at)
{
    for (uint32_t index = 0; index < rsmi_count; index++)
        if (rsmi_positions[index] == at)
            return 1;
    return 0;
}

/* The next process on any device of ours (`at` < 0) or on one; 0: there are no more. */
static int next_process(uint32_t *row, int64_t at, struct ProcessRecord *out)
{
    while (*row < table_header->processes.room) {
        table_read(table_row(&table_header->processes, (*row)++), out, sizeof *out);
        if (out->pid && (at < 0 ? listed(out->device) : out->device == at))
            return 1;
    }
    return 0;
}

static ProcessInfo process_info(const struct ProcessRecord *process)
{
    return (ProcessInfo){.pid = process->pid, .vram = process->used, .cu_occupancy = process->sm};
}

EXPORT int rsmi_compute_process_info_get(ProcessInfo *out, uint32_t *count)
{
    struct ProcessRecord process;
    uint32_t row = 0, found = 0;
    int code = rsmi_enter(__func__);
    if (code || !count)
        return code ? code : INVALID_ARGS;
    while (next_process(&row, -1, &process)) {
        if (out && found < *count)
            out[found] = process_info(&process);
        found++;
    }
    int fits = !out || found <= *count;
    if (fits)
        *count = found;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t index, ProcessInfo *out)
{
    struct ProcessRecord process;
    uint32_t row = 0;
    DEVICE_CALL(out);
    while (next_process(&row, at, &process))
        if (process.pid == pid) {
            *out = process_info(&process);
            return SUCCESS;
        }
    return NOT_FOUND;
}
