/* The part of DCMI that the stand-in offers. DCMI's structures carry no version: nothing beyond the smallest known
 * layout is ever written. */
#ifndef DCMI_STANDIN_H
#define DCMI_STANDIN_H

#include <stddef.h>
#include <stdint.h>

enum {
    OK = 0, INVALID_PARAMETER = -8001, NOT_PERMITTED = -8002, INNER = -8005, TIME_OUT = -8006, INVALID_DEVICE = -8007,
    NOT_EXIST = -8008, NOT_READY = -8012, OCCUPIED = -8020, PARTITION = -8022, NOT_SUPPORT = -8255
};
enum { UNIT_NPU = 0, UNIT_INVALID = 0xFF };
enum { TOPO_SELF = 0, TOPO_SYS = 1, TOPO_PHB = 2, TOPO_HCCS = 3, TOPO_PXB = 4, TOPO_PIX = 5 };
enum { USE_AICORE = 2, USE_HBM = 6, USE_NPU = 13 };
enum { BOOT_FINISHED = 16 };
enum { MAIN_VNPU = 52, VNPU_ONE = 0, VNPU_TOTAL = 1, VNPU_FREE = 2 };

struct chip_info { unsigned char type[32], name[32], version[32]; unsigned int aicores; };
struct chip_info_v2 { struct chip_info base; unsigned char npu_name[32]; };
struct pcie_info_all {
    unsigned int vendor, subvendor, device, subdevice;
    int domain;
    unsigned int bus, dev, func;
    int reserved[8];
};
struct die_id { unsigned int word[5]; };
struct hbm_info { unsigned long long size; unsigned int freq; unsigned long long used; int temperature; unsigned int bandwidth; };
struct ecc_info { int enable; unsigned int single_bit, double_bit, total_single, total_double, single_next, double_next; };
struct proc_mem { int pid; unsigned long bytes; };
struct create_vdev_res { unsigned int vdev_id, vfg_id; char template_name[32]; unsigned char reserved[64]; };
struct create_vdev_out { unsigned int vdev_id, domain, bus, dev, func, vfg_id; unsigned char reserved[28]; };
struct computing { float aicore, reserved0[3], vector, reserved1; unsigned long long memory_mb; unsigned char reserved2[22];
                   unsigned short aicpu; unsigned char reserved3[40]; };
struct base_resource { unsigned long long token, token_max, task_timeout; unsigned int vfg_id; unsigned char vip_mode, reserved[35]; };
struct soc_total {
    unsigned int vdev_num, vdev_id[32], vfg_num, vfg_bitmap;
    unsigned char pad[4];
    struct base_resource base;
    struct computing computing;
    unsigned char media[56];
};
struct soc_free { unsigned int vfg_num, vfg_bitmap; struct base_resource base; struct computing computing; unsigned char media[56]; };
struct vdev_query {
    char name[16];
    unsigned int status, in_use, vfid, vfg_id;
    unsigned long long container_id;
    struct base_resource base;
    struct computing computing;
    unsigned char media[56];
};
struct fault_event {
    unsigned int event_id;
    unsigned short device;
    unsigned char node_type, node_id, sub_node_type, sub_node_id, severity, assertion;
    int serial, notify;
    unsigned char pad[4];
    unsigned long long time;
    char name[256];
    char info[64];
};
struct event { unsigned int type, pad; struct fault_event fault; };

_Static_assert(sizeof(struct chip_info) == 100 && sizeof(struct chip_info_v2) == 132, "chip_info");
_Static_assert(sizeof(struct pcie_info_all) == 64, "pcie_info_all");
_Static_assert(sizeof(struct hbm_info) == 32 && offsetof(struct hbm_info, used) == 16, "hbm_info");
_Static_assert(sizeof(struct ecc_info) == 28, "ecc_info");
_Static_assert(sizeof(struct create_vdev_res) == 104 && sizeof(struct create_vdev_out) == 52, "create_vdev");
_Static_assert(sizeof(struct computing) == 96 && offsetof(struct computing, memory_mb) == 24 &&
               offsetof(struct computing, aicpu) == 54, "computing");
_Static_assert(sizeof(struct base_resource) == 64, "base_resource");
_Static_assert(sizeof(struct soc_total) == 360 && offsetof(struct soc_total, base) == 144 &&
               offsetof(struct soc_total, computing) == 208, "soc_total");
_Static_assert(sizeof(struct soc_free) == 224, "soc_free");
_Static_assert(sizeof(struct vdev_query) == 256 && offsetof(struct vdev_query, base) == 40 &&
               offsetof(struct vdev_query, computing) == 104, "vdev_query");
_Static_assert(sizeof(struct fault_event) == 352 && offsetof(struct fault_event, severity) == 10 &&
               offsetof(struct fault_event, time) == 24 && offsetof(struct fault_event, name) == 32, "fault_event");
_Static_assert(sizeof(struct event) == 360 && sizeof(struct proc_mem) == 16, "event");

#endif
