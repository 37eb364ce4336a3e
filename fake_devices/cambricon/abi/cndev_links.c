/* MLU-Link ports, topology, events. */
#include <stdlib.h>

#include "cndev_call.h"

enum { MAX_REGISTERED = 64 };

/* -- MLU-Link, topology -------------------------------------------------------------------------------------------- */

static int port_of(unsigned int at, int port, struct LinkRecord *link)
{
    for (unsigned int row = 0; row < table_header->links.count; row++) {
        table_read(table_row(&table_header->links, row), link, sizeof *link);
        if (link->device == at && (int)link->port == port)
            return 1;
    }
    return 0;
}

EXPORT int cndevGetMLULinkPortNumber(Dev dev)
{
    struct DeviceRecord record;
    struct LinkRecord link;
    unsigned int at;
    int ports = 0;
    if (cndev_enter_card(__func__, dev, &record, &at))
        return 0;
    while (port_of(at, ports, &link))
        ports++;
    return ports;
}

EXPORT int cndevGetMLULinkStatusV2(MLULinkStatusV2 *out, Dev dev, int port)
{
    CARD_CALL;
    struct LinkRecord link;
    VERSIONED(out);
    if (!port_of(at, port, &link))
        return INVALID_ARGUMENT;
    memset((char *)out + sizeof out->version, 0, sizeof *out - sizeof out->version);
    out->mac_state = (int)link.up;
    out->serdes_state = (int)link.up;
    out->presence = 1;
    return OK;
}

EXPORT int cndevGetMLULinkRemoteInfo(MLULinkRemoteInfo *out, Dev dev, int port)
{
    CARD_CALL;
    struct LinkRecord link;
    VERSIONED(out);
    if (!port_of(at, port, &link) || link.peer < 0)
        return NOT_FOUND;
    memset((char *)out + sizeof out->version, 0, sizeof *out - sizeof out->version);
    memcpy(out->uuid, table_device((uint32_t)link.peer)->uuid, 36);
    return OK;
}

EXPORT int cndevTopologyGetRelationship(Number *out, Dev dev, Dev other)
{
    CARD_CALL;
    struct DeviceRecord second;
    unsigned int at2;
    enum { SELF, INTERNAL, SINGLE_SWITCH, SEVERAL_SWITCHES, HOST_BRIDGE, SAME_CPU, SYSTEM };
    int code = cndev_enter_card(__func__, other, &second, &at2);
    if (code)
        return code;
    VERSIONED(out);
    int same_root = !strncmp(record.root, second.root, sizeof record.root);
    out->value = at == at2                                                      ? SELF
                 : same_root && record.switch_bus && record.switch_bus == second.switch_bus ? SINGLE_SWITCH
                 : same_root                                                    ? HOST_BRIDGE
                 : record.numa == second.numa                                   ? SAME_CPU
                                                                                : SYSTEM;
    return OK;
}

/* -- events -------------------------------------------------------------------------------------------------------- */

struct EventHandle {
    uint64_t next, mask[MAX_REGISTERED];
    Dev dev[MAX_REGISTERED];
    int devices;
};

EXPORT int cndevEventHandleCreate(struct EventHandle **handle)
{
    int code = cndev_enter(__func__);
    if (code || !handle)
        return code ? code : INVALID_ARGUMENT;
    struct EventHandle *made = calloc(1, sizeof *made);
    return made ? (*handle = made, OK) : UNKNOWN;
}

EXPORT int cndevEventHandleDestroy(struct EventHandle *handle)
{
    free(handle);
    return OK;
}

EXPORT int cndevRegisterEvents(struct EventHandle *handle, uint64_t mask, Dev dev)
{
    CARD_CALL;
    if (!handle || handle->devices == MAX_REGISTERED)
        return INVALID_ARGUMENT;
    if (!handle->devices)
        handle->next = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    handle->dev[handle->devices] = dev;
    handle->mask[handle->devices++] = mask;
    return OK;
}

static int take_event(struct EventHandle *handle, EventData *out)
{
    const struct Section *ring = &table_header->events;
    uint64_t head = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    if (head - handle->next > ring->room)
        handle->next = head - ring->room;
    while (handle->next < head) {
        struct EventRecord event = *(const struct EventRecord *)table_row(ring, handle->next % ring->room);
        handle->next++;
        const struct DeviceRecord *record = table_device(event.device);
        for (int one = 0; one < handle->devices; one++) {
            if (record->vendor != CAMBRICON || record->index != handle->dev[one] || !(handle->mask[one] & event.type))
                continue;
            memset(out, 0, sizeof *out);
            out->version = VERSION_6;
            out->type = event.type;
            out->device = record->index;
            out->data = event.code;
            out->time = (uint64_t)event.time_us;
            return 1;
        }
    }
    return 0;
}

EXPORT int cndevEventWait(struct EventHandle *handle, EventData *out, int timeout)
{
    int code = cndev_enter(__func__);
    if (code || !handle)
        return code ? code : INVALID_ARGUMENT;
    VERSIONED(out);
    for (int waited = 0;; waited += STEP_MS) {
        if (take_event(handle, out))
            return OK;
        if (timeout >= 0 && waited >= timeout)
            return TIMEOUT;
        table_sleep_ms(STEP_MS);
    }
}
