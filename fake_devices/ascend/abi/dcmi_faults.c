/* Health, error codes, fault events, topology. */
#include "dcmi_call.h"

/* -- health, faults ------------------------------------------------------------------------------------------------ */

EXPORT int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    struct DeviceRecord record;
    unsigned int at;
    int code = dcmi_enter_chip(__func__, card, device, &record, &at);
    if (!health)
        return INVALID_PARAMETER;
    if (code == NOT_READY && dcmi_started) { /* health of a dropped card: absent */
        *health = 0xFFFFFFFF;
        return OK;
    }
    return code ? code : (*health = record.health, OK);
}

EXPORT int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *list, unsigned int room)
{
    CHIP_CALL;
    if (!count || !list || !room || room > 128)
        return INVALID_PARAMETER;
    unsigned int known = record.error_count < 8 ? record.error_count : 8;
    *count = (int)(known < room ? known : room);
    memcpy(list, record.error_codes, *count * sizeof *list);
    return OK;
}

EXPORT int dcmi_get_device_ecc_info(int card, int device, int kind, struct ecc_info *info)
{
    CHIP_CALL;
    if (!info || kind < 0 || kind > 3)
        return INVALID_PARAMETER;
    if (kind != 2) /* the table has HBM only */
        return NOT_SUPPORT;
    *info = (struct ecc_info){1, record.ecc_corrected, record.ecc_uncorrected, record.ecc_corrected_ever,
                              record.ecc_uncorrected_ever, 0, 0};
    return OK;
}

EXPORT int dcmi_get_device_network_health(int card, int device, unsigned int *result)
{
    CHIP_CALL;
    return result ? (*result = 0, OK) : INVALID_PARAMETER;
}

static uint64_t next_event;

EXPORT int dcmi_subscribe_fault_event(int card, int device, char filter[32], void (*callback)(void *))
{
    CHIP_CALL;
    (void)filter;
    if (callback)
        return NOT_SUPPORT; /* only polling is supported */
    if (!next_event)
        next_event = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    return OK;
}

/* The next event of a chip (of any, for card and device -1); 0 if there is none yet. */
static int take_event(int card, int device, struct event *out)
{
    const struct Section *ring = &table_header->events;
    uint64_t head = __atomic_load_n(&table_header->event_head, __ATOMIC_ACQUIRE);
    if (head - next_event > ring->room)
        next_event = head - ring->room;
    while (next_event < head) {
        struct EventRecord event = *(const struct EventRecord *)table_row(ring, next_event % ring->room);
        next_event++;
        const struct DeviceRecord *record = table_device(event.device);
        if (record->vendor != HUAWEI || (card >= 0 && (record->card != card || record->chip != device)))
            continue;
        memset(out, 0, sizeof *out);
        out->fault.event_id = (unsigned int)event.code;
        out->fault.device = (unsigned short)record->index;
        out->fault.severity = (unsigned char)event.severity;
        out->fault.assertion = (unsigned char)event.assertion;
        out->fault.serial = (int)event.sequence;
        out->fault.time = (unsigned long long)(event.time_us / 1000);
        snprintf(out->fault.name, sizeof out->fault.name, "event 0x%08X", out->fault.event_id);
        return 1;
    }
    return 0;
}

EXPORT int dcmi_get_fault_event(int card, int device, int timeout, struct event *out)
{
    int code = dcmi_enter(__func__);
    if (code || !out)
        return code ? code : INVALID_PARAMETER;
    for (int waited = 0;; waited += STEP_MS) {
        if (take_event(card, device, out))
            return OK;
        if (waited >= timeout)
            return TIME_OUT;
        table_sleep_ms(STEP_MS);
    }
}

/* -- topology ------------------------------------------------------------------------------------------------------ */

static int linked(unsigned int a, unsigned int b)
{
    for (unsigned int row = 0; row < table_header->links.count; row++) {
        struct LinkRecord link;
        table_read(table_row(&table_header->links, row), &link, sizeof link);
        if (link.device == a && link.peer == (int)b && link.up)
            return 1;
    }
    return 0;
}

EXPORT int dcmi_get_topo_info_by_device_id(int card, int device, int card2, int device2, int *topology)
{
    CHIP_CALL;
    struct DeviceRecord second;
    unsigned int at2;
    int code = dcmi_enter_chip(__func__, card2, device2, &second, &at2);
    if (code || !topology)
        return code ? code : INVALID_PARAMETER;
    if (at == at2)
        *topology = TOPO_SELF;
    else if (linked(at, at2))
        *topology = TOPO_HCCS;
    else if (strncmp(record.root, second.root, sizeof record.root))
        *topology = record.numa == second.numa ? TOPO_PHB : TOPO_SYS;
    else
        *topology = record.switch_bus && record.switch_bus == second.switch_bus ? TOPO_PIX : TOPO_PXB;
    return OK;
}
