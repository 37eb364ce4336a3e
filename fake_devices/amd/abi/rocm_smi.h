/* The part of ROCm SMI that the stand-in offers. A device is its index; memory in bytes, temperature in millidegrees
 * Celsius, power in microwatts. */
#ifndef ROCM_SMI_STANDIN_H
#define ROCM_SMI_STANDIN_H

#include <stddef.h>
#include <stdint.h>

enum {
    SUCCESS = 0, INVALID_ARGS = 1, NOT_SUPPORTED = 2, INPUT_OUT_OF_BOUNDS = 7, INIT_ERROR = 8, NOT_FOUND = 10,
    INSUFFICIENT_SIZE = 11, NO_DATA = 14
};
enum { BLOCK_UMC = 0x1, BLOCK_XGMI_WAFL = 0x80, BLOCK_LAST = 0x2000 };
enum { IOLINK_UNDEFINED = 0, IOLINK_PCIEXPRESS = 1, IOLINK_XGMI = 2 };
enum { TEMP_EDGE = 0, TEMP_JUNCTION = 1, TEMP_MEMORY = 2 };
enum { TEMP_CURRENT = 0, TEMP_CRITICAL = 5, TEMP_EMERGENCY = 7 };
enum { POWER_AVERAGE = 0, POWER_CURRENT = 1 };

typedef struct { uint32_t major, minor, patch; const char *build; } Version;
typedef struct { uint64_t correctable, uncorrectable; } ErrorCount;
typedef struct { uint32_t pid, pasid; uint64_t vram, sdma; uint32_t cu_occupancy; } ProcessInfo;
typedef struct { uint32_t device; int event; char message[64]; } EventData;

_Static_assert(sizeof(Version) == 24 && offsetof(Version, build) == 16, "rsmi_version_t");
_Static_assert(sizeof(ErrorCount) == 16, "rsmi_error_count_t");
_Static_assert(sizeof(ProcessInfo) == 32 && offsetof(ProcessInfo, cu_occupancy) == 24, "rsmi_process_info_t");
_Static_assert(sizeof(EventData) == 72, "rsmi_evt_notification_data_t");

#endif
