/* The part of NVML that the stand-in offers: types with the sizes of the vendor's header, and return codes. */
#ifndef NVML_STANDIN_H
#define NVML_STANDIN_H

#include <stddef.h>
#include <stdint.h>

typedef int nvmlReturn_t;
typedef const struct DeviceRecord *nvmlDevice_t;
typedef const struct SliceRecord *nvmlGpuInstance_t;
typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16, IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

typedef struct { char busIdLegacy[16]; uint domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } PciInfo;
typedef struct { ull total, free, used; } Memory;
typedef struct { uint version; ull total, reserved, free, used; } Memory_v2;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { uint pid; ull usedGpuMemory; } ProcessInfo_v1;
typedef struct { uint pid; ull usedGpuMemory; uint gpuInstanceId, computeInstanceId; } ProcessInfo;
typedef struct { uint pid; ull timeStamp; uint smUtil, memUtil, encUtil, decUtil; } ProcessUtilizationSample;
typedef struct { nvmlDevice_t device; ull eventType, eventData; uint gpuInstanceId, computeInstanceId; } EventData;
typedef union { double d; int si; uint ui; unsigned long ul; ull ull_; long long sll; unsigned short us; } Value;
typedef struct { uint fieldId, scopeId; long long timestamp, latencyUsec; uint valueType, nvmlReturn; Value value; } FieldValue;
typedef struct {
    uint multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    ull memorySizeMB;
} DeviceAttributes;
typedef struct { uint start, size; } Placement;
typedef struct { nvmlDevice_t device; uint id, profileId; Placement placement; } GpuInstanceInfo;
typedef struct { nvmlDevice_t device; void *gpuInstance; uint id, profileId; Placement placement; } ComputeInstanceInfo;
typedef struct {
    uint id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    ull memorySizeMB;
} GpuInstanceProfileInfo;
typedef struct {
    uint version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    ull memorySizeMB;
    char name[96];
} GpuInstanceProfileInfo_v2;
typedef struct { unsigned char clusterUuid[16]; nvmlReturn_t status; uint cliqueId; unsigned char state; } FabricInfo_v1;
typedef struct {
    uint version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    uint cliqueId;
    unsigned char state;
    uint healthMask;
    unsigned char healthSummary; /* v3 alone */
} FabricInfo_v3;

_Static_assert(sizeof(PciInfo) == 68, "PciInfo");
_Static_assert(sizeof(Memory) == 24 && sizeof(Memory_v2) == 40, "Memory");
_Static_assert(sizeof(Utilization) == 8, "Utilization");
_Static_assert(sizeof(ProcessInfo_v1) == 16 && sizeof(ProcessInfo) == 24, "ProcessInfo");
_Static_assert(sizeof(ProcessUtilizationSample) == 32, "ProcessUtilizationSample");
_Static_assert(sizeof(EventData) == 32, "EventData");
_Static_assert(sizeof(FieldValue) == 40, "FieldValue");
_Static_assert(sizeof(DeviceAttributes) == 40, "DeviceAttributes");
_Static_assert(sizeof(GpuInstanceInfo) == 24, "GpuInstanceInfo");
_Static_assert(sizeof(GpuInstanceProfileInfo) == 48 && sizeof(GpuInstanceProfileInfo_v2) == 152, "ProfileInfo");
_Static_assert(sizeof(FabricInfo_v1) == 28 && sizeof(FabricInfo_v3) == 40, "FabricInfo");

#define VERSION(type, number) ((uint)(sizeof(type) | (number) << 24))
#define FABRIC_V2_BYTES 36u

#endif
