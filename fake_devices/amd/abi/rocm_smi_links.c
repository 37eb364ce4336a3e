/* XGMI links and event notifications. */
#include "rocm_smi_call.h"

enum { NO_ERRORS = 0, ERROR = 1 };
enum { SAME_SWITCH_HOPS = 1, HOST_HOPS = 2 };

/* -- links --------------------------------------------------------------------------------------------------------- */

EXPORT int rsmi_topo_get_link_type(uint32_t index, uint32_t other, uint64_t *hops, int *kind)
{
    struct LinkRecord link;
    DEVICE_CALL(hops);
    if (!kind || other >= rsmi_count || other == index)
        return INVALID_ARGS;
    *hops = HOST_HOPS;
    *kind = IOLINK_PCIEXPRESS;
    for (uint32_t row = 0; row < table_header->links.count; row++) {
        table_read(table_row(&table_header->links, row), &link, sizeof link);
        if (link.device == at && link.peer == (int32_t)rsmi_positions[other]) {
            *hops = SAME_SWITCH_HOPS;
            *kind = IOLINK_XGMI;
        }
    }
    return SUCCESS;
}

EXPORT int rsmi_dev_xgmi_error_status(uint32_t index, int *out)
{
    struct LinkRecord link;
    DEVICE_CALL(out);
    *out = NO_ERRORS;
    for (uint32_t row = 0; row < table_header->links.count; row++) {
        table_read(table_row(&table_header->links, row), &link, sizeof link);
        if (link.device == at && !link.up)
            *out = ERROR;
    }
    return SUCCESS;
}

/* -- events -------------------------------------------------------------------------------------------------------- */

static uint64_t next_event, masks[MAX_DEVICES];
static int listeners;

EXPORT int rsmi_event_notification_init(uint32_t index)
{
    struct DeviceRecord record;
    uint32_t at;
    int code = rsmi_enter_device(__func__, index, &record, &at);
    if (!code && !listeners++)
        next_event = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    return code;
}

EXPORT int rsmi_event_notification_mask_set(uint32_t index, uint64_t mask)
{
    struct DeviceRecord record;
    uint32_t at;
    int code = rsmi_enter_device(__func__, index, &record, &at);
    if (!code)
        masks[index] = mask;
    return code;
}

EXPORT int rsmi_event_notification_stop(uint32_t index)
{
    int code = rsmi_enter(__func__);
    if (code || index >= rsmi_count)
        return code ? code : INVALID_ARGS;
    masks[index] = 0;
    listeners -= listeners > 0;
    return SUCCESS;
}

static uint32_t take_events(EventData *out, uint32_t room)
{
    const struct Section *ring = &table_header->events;
    uint64_t head = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    uint32_t taken = 0;
    if (head - next_event > ring->room)
        next_event = head - ring->room;
    while (next_event < head && taken < room) {
        struct EventRecord event = *(const struct EventRecord *)table_row(ring, next_event++ % ring->room);
        for (uint32_t index = 0; index < rsmi_count; index++)
            if (rsmi_positions[index] == event.device && masks[index] & 1ull << (event.type - 1)) {
                out[taken] = (EventData){.device = index, .event = (int)event.type};
                snprintf(out[taken++].message, sizeof out->message, "%llx", (unsigned long long)event.code);
            }
    }
    return taken;
}

EXPORT int rsmi_event_notification_get(int timeout_ms, uint32_t *count, EventData *out)
{
    int code = rsmi_enter(__func__);
    if (code || !count || !out)
        return code ? code : INVALID_ARGS;
    uint32_t room = *count;
    for (int waited = 0;; waited += STEP_MS) {
        *count = take_events(out, room);
        if (*count)
            return SUCCESS;
        if (waited >= timeout_ms)
            return NO_DATA;
        table_sleep_ms(STEP_MS);
    }
}
