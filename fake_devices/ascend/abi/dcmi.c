/* libdcmi.so: DCMI over the device table. A chip is named by card and device; logic ids are this machine's order, physical
 * ids are the N of /dev/davinciN. Memory goes out in MB, power in tenths of a watt, as the vendor's library has it. */
#include "dcmi_call.h"


int dcmi_started;

int dcmi_enter(const char *call)
{
    if (!dcmi_started)
        return NOT_READY;
    table_dawdle(library(), call);
    return OK;
}

int dcmi_enter_chip(const char *call, int card, int device, struct DeviceRecord *record, unsigned int *at)
{
    int code = dcmi_enter(call);
    if (code)
        return code;
    for (*at = 0; *at < table_header->devices.count; ++*at) {
        const struct DeviceRecord *one = table_device(*at);
        if (!is_chip(one) || one->card != card || one->chip != device)
            continue;
        table_read(one, record, sizeof *record);
        if (record->delay_ms)
            table_sleep_ms(record->delay_ms);
        return record->code;
    }
    return NOT_EXIST;
}

static int text_out(char *out, unsigned int room, const char *text)
{
    if (!out || room <= strlen(text))
        return INVALID_PARAMETER;
    strcpy(out, text);
    return OK;
}

/* -- start, versions ----------------------------------------------------------------------------------------------- */

EXPORT int dcmi_init(void)
{
    if (table_attach())
        return INNER;
    table_dawdle(library(), __func__);
    if (library()->code)
        return library()->code;
    dcmi_started = 1;
    return OK;
}

EXPORT int dcmi_get_dcmi_version(char *text, unsigned int room)
{
    int code = dcmi_enter(__func__);
    return code ? code : text_out(text, room, library()->library);
}

EXPORT int dcmi_get_driver_version(char *text, unsigned int room)
{
    int code = dcmi_enter(__func__);
    return code ? code : text_out(text, room, library()->driver);
}

/* -- cards, chips, ids --------------------------------------------------------------------------------------------- */

EXPORT int dcmi_get_card_list(int *count, int *list, int room)
{
    int code = dcmi_enter(__func__), found = 0;
    if (code)
        return code;
    if (!count || !list || room <= 0)
        return INVALID_PARAMETER;
    for (unsigned int at = 0; at < table_header->devices.count; at++) {
        const struct DeviceRecord *record = table_device(at);
        if (!is_chip(record) || record->chip != 0)
            continue;
        if (found == room)
            return INVALID_PARAMETER;
        list[found++] = record->card;
    }
    *count = found;
    return OK;
}

EXPORT int dcmi_get_card_num_list(int *count, int *list, int room) { return dcmi_get_card_list(count, list, room); }

static int chips_of(int card)
{
    int chips = 0;
    for (unsigned int at = 0; at < table_header->devices.count; at++)
        chips += is_chip(table_device(at)) && table_device(at)->card == card;
    return chips;
}

EXPORT int dcmi_get_device_num_in_card(int card, int *count)
{
    int code = dcmi_enter(__func__);
    if (code || !count)
        return code ? code : INVALID_PARAMETER;
    int chips = chips_of(card);
    return chips ? (*count = chips, OK) : NOT_EXIST;
}

EXPORT int dcmi_get_device_id_in_card(int card, int *npus, int *mcu, int *cpu)
{
    int code = dcmi_get_device_num_in_card(card, npus);
    if (code || !mcu || !cpu)
        return code ? code : INVALID_PARAMETER;
    *mcu = *cpu = -1;
    return OK;
}

EXPORT int dcmi_get_device_type(int card, int device, unsigned int *type)
{
    CHIP_CALL;
    return type ? (*type = UNIT_NPU, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    CHIP_CALL;
    return logic ? (*logic = record.index, OK) : INVALID_PARAMETER;
}

/* The chip whose logic (or physical) id is `id`; null if there is none. */
static const struct DeviceRecord *by_id(unsigned int id, int physical)
{
    for (unsigned int at = 0; at < table_header->devices.count; at++) {
        const struct DeviceRecord *one = table_device(at);
        if (is_chip(one) && (unsigned int)(physical ? one->minor : one->index) == id)
            return one;
    }
    return 0;
}

#define BY_ID(id, physical)                                                                                            \
    int entered = dcmi_enter(__func__);                                                                                     \
    if (entered)                                                                                                       \
        return entered;                                                                                                \
    const struct DeviceRecord *found = by_id(id, physical);                                                            \
    if (!found)                                                                                                        \
        return INVALID_DEVICE

EXPORT int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    BY_ID(logic, 0);
    return physical ? (*physical = found->minor, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_device_logicid_from_phyid(unsigned int physical, unsigned int *logic)
{
    BY_ID(physical, 1);
    return logic ? (*logic = found->index, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_card_id_device_id_from_logicid(int *card, int *device, unsigned int logic)
{
    BY_ID(logic, 0);
    return card && device ? (*card = found->card, *device = found->chip, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_card_id_device_id_from_phyid(int *card, int *device, unsigned int physical)
{
    BY_ID(physical, 1);
    return card && device ? (*card = found->card, *device = found->chip, OK) : INVALID_PARAMETER;
}

/* -- what a chip is ------------------------------------------------------------------------------------------------ */

static void chip_info(const struct DeviceRecord *record, struct chip_info *info)
{
    memset(info, 0, sizeof *info);
    strcpy((char *)info->type, "Ascend");
    snprintf((char *)info->name, sizeof info->name, "%.31s", record->name);
    strcpy((char *)info->version, "V1");
    info->aicores = record->cores;
}

EXPORT int dcmi_get_device_chip_info(int card, int device, struct chip_info *info)
{
    CHIP_CALL;
    return info ? (chip_info(&record, info), OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_device_chip_info_v2(int card, int device, struct chip_info_v2 *info)
{
    CHIP_CALL;
    if (!info)
        return INVALID_PARAMETER;
    chip_info(&record, &info->base);
    memset(info->npu_name, 0, sizeof info->npu_name);
    snprintf((char *)info->npu_name, sizeof info->npu_name, "%.31s", record.name);
    return OK;
}

EXPORT int dcmi_get_product_type(int card, int device, char *text, int room)
{
    CHIP_CALL;
    (void)text, (void)room;
    return NOT_SUPPORT; /* so on 910A and 910B */
}

EXPORT int dcmi_get_device_pcie_info_v2(int card, int device, struct pcie_info_all *info)
{
    CHIP_CALL;
    if (!info)
        return INVALID_PARAMETER;
    *info = (struct pcie_info_all){
        .vendor = record.pci_id & 0xffff, .device = record.pci_id >> 16,
        .subvendor = record.pci_subsystem & 0xffff, .subdevice = record.pci_subsystem >> 16,
        .domain = record.domain, .bus = record.bus, .dev = record.device, .func = record.function};
    return OK;
}

EXPORT int dcmi_get_device_die_v2(int card, int device, int which, struct die_id *die)
{
    CHIP_CALL;
    struct die_id found;
    if (!die || which < 0 || which > 2)
        return INVALID_PARAMETER;
    if (sscanf(record.uuid, "%8x-%8x-%8x-%8x-%8x", &found.word[0], &found.word[1], &found.word[2], &found.word[3],
               &found.word[4]) != 5)
        return INNER;
    found.word[0] ^= which == 1 ? 0 : 0x5a5a5a5a; /* three dies, three identities; the VDIE's is the one in use */
    *die = found;
    return OK;
}

/* -- what it does -------------------------------------------------------------------------------------------------- */

EXPORT int dcmi_get_device_hbm_info(int card, int device, struct hbm_info *info)
{
    CHIP_CALL;
    if (!info)
        return INVALID_PARAMETER;
    unsigned long long total = record.memory_total >> 20;
    unsigned int share = total ? (unsigned int)((record.memory_used >> 20) * 100 / total) : 0;
    *info = (struct hbm_info){total, 1600, record.memory_used >> 20, record.temperature, share};
    return OK;
}

EXPORT int dcmi_get_device_memory_info_v3(int card, int device, void *info)
{
    CHIP_CALL;
    (void)info;
    return NOT_SUPPORT; /* DDR belongs to 310P */
}

EXPORT int dcmi_get_device_utilization_rate(int card, int device, int what, unsigned int *rate)
{
    CHIP_CALL;
    if (!rate)
        return INVALID_PARAMETER;
    switch (what) {
    case USE_AICORE: case USE_NPU: *rate = record.core_use; return OK;
    case USE_HBM: *rate = record.memory_total ? (unsigned int)(record.memory_used * 100 / record.memory_total) : 0; return OK;
    default: return NOT_SUPPORT;
    }
}

EXPORT int dcmi_get_device_resource_info(int card, int device, struct proc_mem *list, int *count)
{
    CHIP_CALL;
    int found = 0;
    if (!list || !count)
        return INVALID_PARAMETER;
    for (unsigned int row = 0; row < table_header->processes.room && found < 32; row++) {
        struct ProcessRecord process;
        table_read(table_row(&table_header->processes, row), &process, sizeof process);
        if (process.pid && process.device == at)
            list[found++] = (struct proc_mem){process.pid, process.used};
    }
    *count = found;
    return OK;
}

EXPORT int dcmi_get_device_temperature(int card, int device, int *celsius)
{
    CHIP_CALL;
    return celsius ? (*celsius = record.temperature, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_device_power_info(int card, int device, int *tenths)
{
    CHIP_CALL;
    return tenths ? (*tenths = record.power_mw / 100, OK) : INVALID_PARAMETER;
}

EXPORT int dcmi_get_device_boot_status(int card, int device, int *status)
{
    CHIP_CALL;
    return status ? (*status = BOOT_FINISHED, OK) : INVALID_PARAMETER;
}
