/* Event sets over the ring. A set has its own read position, which starts at the first registration. */
#include <stdlib.h>

#include "call.h"

enum { STEP_MS = 10, MAX_REGISTERED = 64 };
#define SUPPORTED (0x1ull | 0x2ull | 0x4ull | 0x8ull | 0x10ull | 0x100ull | 0x4000ull | 0x8000ull)

struct EventSet {
    uint64_t next;
    int devices;
    uint32_t device[MAX_REGISTERED];
    uint64_t mask[MAX_REGISTERED];
};

EXPORT nvmlReturn_t nvmlEventSetCreate(struct EventSet **set)
{
    SYSTEM_CALL;
    if (!set)
        return INVALID_ARGUMENT;
    struct EventSet *made = calloc(1, sizeof *made);
    if (!made)
        return UNKNOWN;
    *set = made;
    return OK;
}

EXPORT nvmlReturn_t nvmlEventSetFree(struct EventSet *set)
{
    SYSTEM_CALL;
    free(set);
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, ull *types)
{
    DEVICE_CALL;
    return types ? (*types = SUPPORTED, OK) : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, ull types, struct EventSet *set)
{
    DEVICE_CALL;
    if (!set || set->devices == MAX_REGISTERED)
        return INVALID_ARGUMENT;
    if (types & ~SUPPORTED)
        return NOT_SUPPORTED;
    if (!set->devices)
        set->next = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    set->device[set->devices] = record_number(handle, slice);
    set->mask[set->devices++] = types;
    return OK;
}

/* The next event that the set is registered for; 0 if there is none yet. */
static int next_event(struct EventSet *set, struct EventRecord *event)
{
    const struct Section *ring = &table_header->events;
    uint64_t head = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    if (head - set->next > ring->room)
        set->next = head - ring->room; /* fell behind: the oldest events are lost */
    for (; set->next < head; set->next++) {
        *event = *(const struct EventRecord *)table_row(ring, set->next % ring->room);
        if (event->sequence != set->next)
            continue;
        for (int at = 0; at < set->devices; at++)
            if (set->device[at] == event->device && set->mask[at] & event->type) {
                set->next++;
                return 1;
            }
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct EventSet *set, EventData *data, uint timeout)
{
    SYSTEM_CALL;
    struct EventRecord event;
    if (!set || !data)
        return INVALID_ARGUMENT;
    for (uint waited = 0;; waited += STEP_MS) {
        if (next_event(set, &event)) {
            *data = (EventData){table_device(event.device), event.type, event.code, ~0u, ~0u};
            return OK;
        }
        if (waited >= timeout)
            return TIMEOUT;
        table_sleep_ms(timeout - waited < STEP_MS ? timeout - waited : STEP_MS);
    }
}
ALIAS(nvmlEventSetWait, (struct EventSet *set, EventData *data, uint timeout), nvmlEventSetWait_v2(set, data, timeout))
