/* The part of CNDEV that the stand-in offers. Nearly every structure starts with a version that the caller sets to 6;
 * anything else is refused. Fields that are never read are bytes. */
#ifndef CNDEV_STANDIN_H
#define CNDEV_STANDIN_H

#include <stddef.h>
#include <stdint.h>

enum {
    OK = 0, NO_DRIVER = 1, UNSUPPORTED_VERSION = 3, UNINITIALIZED = 4, INVALID_ARGUMENT = 5, INVALID_DEVICE = 6,
    UNKNOWN = 7, SPACE_TOO_SMALL = 9, NOT_SUPPORTED = 10, NOT_FOUND = 14, IN_USE = 15, TIMEOUT = 17
};
enum { VERSION_6 = 6 };

typedef int32_t Dev;
typedef struct { int version; unsigned int number; } CardInfo;
typedef struct { int64_t total, used, reserved, virtual_total, virtual_used; uint64_t global_memory, spare[16]; } MemoryInfoV2;
typedef struct { int version; unsigned int mcu[3], driver[3]; } VersionInfo;
typedef struct { int version; uint8_t uuid[37]; uint8_t pad[7]; uint64_t ncs; } Uuid;
typedef struct { int version; int pad; int64_t sn, motherboard; } CardSN;
typedef struct { int version; int value; } Number; /* CardName, NUMANodeId, ComputeMode, SMLUMode, TopologyRelationship */
typedef struct { int version; int health, device_state, driver_state; } CardHealthState;
typedef struct { int version; int average, core[80]; } UtilizationInfo;
typedef struct {
    unsigned int subsystem, device;
    uint16_t vendor, subvendor;
    unsigned int domain, bus, device_id, function;
    uint16_t module, slot;
    unsigned int spare[8];
} PCIeInfoV2;
typedef struct { int version; int mac_state, serdes_state, presence; unsigned int spare[7]; } MLULinkStatusV2;
typedef struct { int version; uint8_t head[44]; uint8_t uuid[37]; uint8_t tail[291]; } MLULinkRemoteInfo;
typedef struct { int version; unsigned int pid; uint64_t physical, virtual_used; } ProcessInfo;
typedef struct { int version; int board, cluster[20], memory_die[8], chip, air_inlet, air_outlet, memory, video, image[1], spare; } TemperatureInfo;
typedef struct { int version; unsigned int pad; uint64_t counter[8]; } ECCInfo;
typedef struct { int version; unsigned int quota; uint64_t memory; } SMluSet;
typedef struct {
    int version, id;
    char name[100];
    unsigned int total, remaining, quota[2];
    unsigned int pad;
    uint64_t memory[2];
} SMluProfileInfo;
typedef struct { int version; int count; int id[128]; } SMluProfileIdInfo;
typedef struct {
    int version, profile, instance;
    uint8_t uuid[37];
    uint8_t pad0[3];
    unsigned int domain, bus, device, function;
    char profile_name[100], instance_name[100], node_name[100];
    unsigned int quota[2];
    uint64_t memory[2];
    uint8_t tail[512];
} SMluInfo;
typedef struct { int version; unsigned int pad; uint64_t type; Dev device; unsigned int instance; uint64_t data; uint64_t time; uint8_t tail[64]; } EventData;

_Static_assert(sizeof(CardInfo) == 8 && sizeof(Number) == 8 && sizeof(CardSN) == 24, "small ones");
_Static_assert(sizeof(MemoryInfoV2) == 176, "MemoryInfoV2");
_Static_assert(sizeof(VersionInfo) == 28 && sizeof(Uuid) == 56 && offsetof(Uuid, ncs) == 48, "VersionInfo, UUID");
_Static_assert(sizeof(CardHealthState) == 16 && sizeof(UtilizationInfo) == 328, "health, use");
_Static_assert(sizeof(PCIeInfoV2) == 64 && offsetof(PCIeInfoV2, domain) == 12, "PCIeInfoV2");
_Static_assert(sizeof(MLULinkStatusV2) == 44 && sizeof(MLULinkRemoteInfo) == 376 && offsetof(MLULinkRemoteInfo, uuid) == 48,
               "MLU-Link");
_Static_assert(sizeof(ProcessInfo) == 24 && sizeof(TemperatureInfo) == 148 && sizeof(ECCInfo) == 72, "process, heat, ECC");
_Static_assert(sizeof(SMluSet) == 16 && sizeof(SMluProfileIdInfo) == 520, "sMLU set, ids");
_Static_assert(sizeof(SMluProfileInfo) == 144 && offsetof(SMluProfileInfo, total) == 108 &&
               offsetof(SMluProfileInfo, quota) == 116 && offsetof(SMluProfileInfo, memory) == 128, "sMLU profile");
_Static_assert(sizeof(SMluInfo) == 904 && offsetof(SMluInfo, domain) == 52 && offsetof(SMluInfo, profile_name) == 68 &&
               offsetof(SMluInfo, node_name) == 268 && offsetof(SMluInfo, quota) == 368 && offsetof(SMluInfo, memory) == 376,
               "sMLU instance");
_Static_assert(sizeof(EventData) == 104, "EventData");

#endif
