/* vNPUs: read from the table; created and removed by a request to its writer. */
#include "dcmi_call.h"

enum { CREATE = 2, DESTROY = 3, SLICE_VNPU = 2 };

EXPORT int dcmi_create_vdevice(int card, int device, struct create_vdev_res *wanted, struct create_vdev_out *out)
{
    CHIP_CALL;
    struct Mailbox answer;
    if (!wanted || !out)
        return INVALID_PARAMETER;
    uint64_t arguments[2] = {wanted->vdev_id, wanted->vfg_id};
    if (table_ask(CREATE, at, arguments, 2, wanted->template_name, &answer))
        return TIME_OUT;
    if (answer.answer)
        return answer.answer;
    memset(out, 0, sizeof *out);
    out->vdev_id = (unsigned int)answer.results[0];
    out->domain = record.domain;
    out->bus = record.bus;
    out->dev = record.device;
    out->func = record.function;
    return OK;
}

EXPORT int dcmi_set_destroy_vdevice(int card, int device, unsigned int id)
{
    CHIP_CALL;
    struct Mailbox answer;
    uint64_t arguments[1] = {id};
    if (table_ask(DESTROY, at, arguments, 1, 0, &answer))
        return TIME_OUT;
    return answer.answer;
}

static const struct SliceRecord *vnpu(unsigned int row, unsigned int at)
{
    const struct SliceRecord *slice = table_row(&table_header->slices, row);
    return slice->id && slice->kind == SLICE_VNPU && slice->device == at ? slice : 0;
}

static int vnpu_info(const struct DeviceRecord *record, unsigned int at, unsigned int what, void *out, unsigned int *size)
{
    float cores = 0;
    unsigned int count = 0, ids[32] = {0};
    unsigned long long memory = 0;
    unsigned int cpus = 0;
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = vnpu(row, at);
        if (!slice)
            continue;
        if (count < 32)
            ids[count++] = slice->id;
        cores += slice->cores;
        cpus += slice->cpus;
        memory += slice->memory >> 20;
    }
    struct computing all = {.aicore = record->cores, .memory_mb = record->memory_total >> 20, .aicpu = record->cpus};
    if (what == VNPU_TOTAL && *size >= sizeof(struct soc_total)) {
        struct soc_total *total = out;
        memset(total, 0, sizeof *total);
        total->vdev_num = count;
        memcpy(total->vdev_id, ids, sizeof ids);
        total->computing = all;
        *size = sizeof *total;
        return OK;
    }
    if (what == VNPU_FREE && *size >= sizeof(struct soc_free)) {
        struct soc_free *left = out;
        memset(left, 0, sizeof *left);
        all.aicore -= cores;
        all.memory_mb -= memory;
        all.aicpu = (unsigned short)(all.aicpu - cpus);
        left->computing = all;
        *size = sizeof *left;
        return OK;
    }
    return INVALID_PARAMETER;
}

/* One vNPU: the caller names it in the first word of the buffer; what is known of it follows eight bytes on. */
static int vnpu_one(unsigned int at, void *out, unsigned int *size)
{
    unsigned int wanted = *(unsigned int *)out;
    if (*size < 8 + sizeof(struct vdev_query))
        return INVALID_PARAMETER;
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = vnpu(row, at);
        if (!slice || slice->id != wanted)
            continue;
        struct vdev_query *query = (struct vdev_query *)((char *)out + 8);
        memset(query, 0, sizeof *query);
        snprintf(query->name, sizeof query->name, "%.15s", slice->name);
        query->in_use = slice->memory_used != 0;
        query->vfid = slice->start;
        query->computing.aicore = slice->cores;
        query->computing.memory_mb = slice->memory >> 20;
        query->computing.aicpu = (unsigned short)slice->cpus;
        return OK;
    }
    return NOT_EXIST;
}

EXPORT int dcmi_get_device_info(int card, int device, int main_command, unsigned int sub, void *out, unsigned int *size)
{
    CHIP_CALL;
    if (!out || !size)
        return INVALID_PARAMETER;
    if (main_command != MAIN_VNPU)
        return NOT_SUPPORT;
    return sub == VNPU_ONE ? vnpu_one(at, out, size) : vnpu_info(&record, at, sub, out, size);
}
