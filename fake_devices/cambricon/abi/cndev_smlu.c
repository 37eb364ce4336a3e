/* sMLU profiles and instances: read from the table; created and removed by a request to its writer. */
#include "cndev_call.h"

enum { SLICE_SMLU = 3 };
enum { SET_MODE = 1, CREATE = 2, DESTROY = 3, CREATE_PROFILE = 4, DESTROY_PROFILE = 5 };

static int ask(unsigned int operation, unsigned int at, uint64_t first, uint64_t second, const char *text,
               struct Mailbox *answer)
{
    uint64_t arguments[2] = {first, second};
    return table_ask(operation, at, arguments, 2, text, answer) ? TIMEOUT : answer->answer;
}

EXPORT int cndevSetSMLUMode(Number *in, Dev dev)
{
    CARD_CALL;
    struct Mailbox answer;
    VERSIONED(in);
    return ask(SET_MODE, at, (uint64_t)in->value, 0, 0, &answer);
}

EXPORT int cndevCreateSMluProfileInfo(SMluSet *in, int *profile, Dev dev)
{
    CARD_CALL;
    struct Mailbox answer;
    VERSIONED(in);
    if (!profile)
        return INVALID_ARGUMENT;
    int code = ask(CREATE_PROFILE, at, in->quota, in->memory, 0, &answer);
    return code ? code : (*profile = (int)answer.results[0], OK);
}

EXPORT int cndevDestroySMluProfileInfo(int profile, Dev dev)
{
    CARD_CALL;
    struct Mailbox answer;
    return ask(DESTROY_PROFILE, at, (uint64_t)profile, 0, 0, &answer);
}

/* An instance's handle is its number shifted by eight bits and the card's number; a profile has no parent. */
static Dev handle_of(const struct SliceRecord *slice)
{
    return (Dev)(slice->id << 8 | (unsigned int)table_device(slice->device)->index);
}

static const struct SliceRecord *smlu(unsigned int row)
{
    const struct SliceRecord *slice = table_row(&table_header->slices, row);
    return slice->id && slice->kind == SLICE_SMLU ? slice : 0;
}

static void describe(const struct SliceRecord *slice, const struct DeviceRecord *record, SMluInfo *out)
{
    memset((char *)out + sizeof out->version, 0, sizeof *out - sizeof out->version);
    out->profile = (int)slice->profile;
    out->instance = (int)slice->id;
    memcpy(out->uuid, slice->uuid, 36);
    out->domain = record->domain;
    out->bus = record->bus;
    out->device = record->device;
    out->function = record->function;
    snprintf(out->profile_name, sizeof out->profile_name, "%.31s", slice->name);
    snprintf(out->instance_name, sizeof out->instance_name, "%.63s", slice->label);
    snprintf(out->node_name, sizeof out->node_name,
             "/dev/cambricon_dev%d,/dev/cambricon_ipcm%d,/dev/cambricon-caps/cap_dev%d_mi%u", record->minor,
             record->minor, record->minor, slice->id);
    out->quota[0] = slice->cores;
    out->memory[0] = slice->memory;
    out->memory[1] = slice->memory_used;
}

EXPORT int cndevCreateSMluInstanceByProfileId(Dev *handle, unsigned int profile, Dev dev, const char *name)
{
    CARD_CALL;
    struct Mailbox answer;
    if (!handle)
        return INVALID_ARGUMENT;
    int code = ask(CREATE, at, profile, 0, name, &answer);
    return code ? code : (*handle = (Dev)(answer.results[0] << 8) | dev, OK);
}

EXPORT int cndevDestroySMluInstanceByHandle(Dev handle)
{
    int code = cndev_enter(__func__);
    if (code)
        return code;
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = smlu(row);
        struct Mailbox answer;
        if (slice && slice->parent && handle_of(slice) == handle)
            return ask(DESTROY, slice->device, slice->id, 0, 0, &answer);
    }
    return NOT_FOUND;
}

EXPORT int cndevGetAllSMluInstanceInfo(int *count, SMluInfo *out, Dev dev)
{
    CARD_CALL;
    if (!count)
        return INVALID_ARGUMENT;
    int found = 0, room = out ? *count : 0;
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = smlu(row);
        if (!slice || !slice->parent || slice->device != at)
            continue;
        if (found < room) {
            out[found].version = VERSION_6;
            describe(slice, &record, &out[found]);
        }
        found++;
    }
    *count = found;
    return found <= room || !found ? OK : SPACE_TOO_SMALL;
}

EXPORT int cndevGetSMluInstanceInfo(SMluInfo *out, Dev handle)
{
    int code = cndev_enter(__func__);
    if (code)
        return code;
    VERSIONED(out);
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = smlu(row);
        if (slice && slice->parent && handle_of(slice) == handle) {
            describe(slice, table_device(slice->device), out);
            return OK;
        }
    }
    return NOT_FOUND;
}

EXPORT int cndevGetSMluProfileIdInfo(SMluProfileIdInfo *out, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    out->count = 0;
    for (unsigned int row = 0; row < table_header->slices.room && out->count < 128; row++)
        if (smlu(row) && !smlu(row)->parent && smlu(row)->device == at)
            out->id[out->count++] = (int)smlu(row)->profile;
    return OK;
}

EXPORT int cndevGetSMluProfileInfo(SMluProfileInfo *out, int profile, Dev dev)
{
    CARD_CALL;
    VERSIONED(out);
    for (unsigned int row = 0; row < table_header->slices.room; row++) {
        const struct SliceRecord *slice = smlu(row);
        if (!slice || slice->parent || slice->device != at || (int)slice->profile != profile)
            continue;
        memset((char *)out + sizeof out->version, 0, sizeof *out - sizeof out->version);
        out->id = profile;
        snprintf(out->name, sizeof out->name, "%.31s", slice->name);
        out->total = out->remaining = slice->cores ? 100 / slice->cores : 0;
        out->quota[0] = slice->cores;
        out->memory[0] = slice->memory;
        return OK;
    }
    return NOT_FOUND;
}
