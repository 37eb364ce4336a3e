/* Handles, and MIG as far as it is read: a MIG device's handle is the record of its compute instance, and a GPU
 * instance's handle is its record. */
#include "call.h"

enum { SLICE_INSTANCE = 0, SLICE_COMPUTE = 1 };

static const struct SliceRecord *slice_row(uint at)
{
    return table_row(&table_header->slices, at);
}

static int is_compute(const struct SliceRecord *slice)
{
    return slice->id && slice->kind == SLICE_COMPUTE && table_device(slice->device)->vendor == NVIDIA;
}

nvmlReturn_t nvml_enter(const char *call, nvmlDevice_t handle, struct DeviceRecord *record,
                        const struct SliceRecord **slice)
{
    if (!nvml_running())
        return UNINITIALIZED;
    table_dawdle(&table_header->libraries[NVIDIA], call);
    const char *at = (const char *)handle, *base = (const char *)table_header;
    const struct Section *devices = &table_header->devices, *slices = &table_header->slices;
    uint64_t offset = at - base;
    *slice = 0;
    if (at < base || offset >= table_header->bytes)
        return INVALID_ARGUMENT;
    if (offset >= slices->offset && offset < slices->offset + (uint64_t)slices->stride * slices->room) {
        *slice = (const struct SliceRecord *)handle;
        if ((offset - slices->offset) % slices->stride || !is_compute(*slice))
            return NOT_FOUND;
        handle = table_device((*slice)->device);
    } else if (offset < devices->offset || offset >= devices->offset + (uint64_t)devices->stride * devices->count ||
               (offset - devices->offset) % devices->stride) {
        return INVALID_ARGUMENT;
    }
    table_read(handle, record, sizeof *record);
    if (record->delay_ms)
        table_sleep_ms(record->delay_ms);
    if (!record->present)
        return GPU_IS_LOST;
    return record->code;
}

nvmlReturn_t mig_by_uuid(const char *uuid, nvmlDevice_t *handle)
{
    for (uint at = 0; at < table_header->slices.room; at++)
        if (is_compute(slice_row(at)) && !strcmp(slice_row(at)->uuid, uuid)) {
            *handle = (nvmlDevice_t)slice_row(at);
            return OK;
        }
    return NOT_FOUND;
}

nvmlReturn_t mig_name(const struct DeviceRecord *record, const struct SliceRecord *slice, char *text, uint room)
{
    char name[160];
    snprintf(name, sizeof name, "%.96s MIG %.32s", record->name, slice->name);
    return copy_text(text, room, name, sizeof name);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, uint *now, uint *pending)
{
    DEVICE_CALL;
    if (!now || !pending)
        return INVALID_ARGUMENT;
    if (!record.slice_capable)
        return NOT_SUPPORTED;
    *now = *pending = record.slice_mode;
    return OK;
}

/* Profiles cannot be asked for here: a card is divided as the fleet says. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, uint profile, void *out)
{
    DEVICE_CALL;
    (void)profile;
    return out ? NOT_SUPPORTED : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, uint id, nvmlGpuInstance_t *out)
{
    DEVICE_CALL;
    if (!out || slice)
        return INVALID_ARGUMENT;
    if (!record.slice_mode)
        return NOT_SUPPORTED;
    uint32_t own = record_number(handle, slice);
    for (uint at = 0; at < table_header->slices.room; at++) {
        nvmlGpuInstance_t each = slice_row(at);
        if (id && each->id == id && each->kind == SLICE_INSTANCE && each->device == own)
            return *out = each, OK;
    }
    return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, GpuInstanceInfo *out)
{
    SYSTEM_CALL;
    const struct Section *slices = &table_header->slices;
    uint64_t offset = (const char *)instance - (const char *)table_header - slices->offset;
    if (!out || offset >= (uint64_t)slices->stride * slices->room || offset % slices->stride)
        return INVALID_ARGUMENT;
    if (!instance->id || instance->kind != SLICE_INSTANCE || table_device(instance->device)->vendor != NVIDIA)
        return NOT_FOUND;
    *out = (GpuInstanceInfo){table_device(instance->device), instance->id, instance->profile,
                             {instance->start, instance->size}};
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, uint *count)
{
    DEVICE_CALL;
    if (!count)
        return INVALID_ARGUMENT;
    *count = record.slice_capable ? 7 : 0;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, uint index, nvmlDevice_t *out)
{
    DEVICE_CALL;
    if (!out)
        return INVALID_ARGUMENT;
    if (!record.slice_mode)
        return NOT_SUPPORTED;
    uint32_t own = record_number(handle, slice);
    for (uint at = 0, found = 0; at < table_header->slices.room; at++)
        if (is_compute(slice_row(at)) && slice_row(at)->device == own && found++ == index) {
            *out = (nvmlDevice_t)slice_row(at);
            return OK;
        }
    return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *out)
{
    DEVICE_CALL;
    if (!out || !slice)
        return INVALID_ARGUMENT;
    *out = table_device(slice->device);
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, uint *is)
{
    DEVICE_CALL;
    return is ? (*is = slice != 0, OK) : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, uint *id)
{
    DEVICE_CALL;
    if (!slice || !id)
        return slice ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *id = slice->parent;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, uint *id)
{
    DEVICE_CALL;
    if (!slice || !id)
        return slice ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *id = slice->number;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, DeviceAttributes *out)
{
    DEVICE_CALL;
    if (!slice || !out)
        return slice ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *out = (DeviceAttributes){
        .multiprocessorCount = slice->cores, .sharedCopyEngineCount = slice->engines & 255,
        .sharedDecoderCount = slice->engines >> 8 & 255, .sharedJpegCount = slice->engines >> 16 & 255,
        .sharedOfaCount = slice->engines >> 24, .gpuInstanceSliceCount = slice->size,
        .computeInstanceSliceCount = slice->size, .memorySizeMB = slice->memory >> 20};
    return OK;
}
