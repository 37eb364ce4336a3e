/* A stand-in for libcuda.so.1 that enforces limits, or does not: for tests of the checks, not a model of a card.
 *
 * CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT are obeyed unless STANDIN_LAX is set. A kernel takes as many
 * nanoseconds as it has rounds, divided by the limit; kernels of one process run one after the other in real time.
 * A few calls that no tenant makes are there for the real library, which makes them itself.
 * STANDIN_CRASH=fill dies in the third allocation; STANDIN_HANG=launch never comes back from a launch.
 */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CARD ((size_t)8 << 30)
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_READY = 600 };

static size_t used;
static int allocations;
static uint64_t busy_until;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static size_t limit(void)
{
    const char *text = getenv("STANDIN_LAX") ? NULL : getenv("CUDA_DEVICE_MEMORY_LIMIT");
    return text ? strtoull(text, NULL, 10) : CARD;
}

static void wait_until(uint64_t moment)
{
    while (now() < moment)
        usleep(50);
}

EXPORT int cuInit(unsigned flags) { return flags ? INVALID : OK; }
EXPORT int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &used; return OK; }
EXPORT int cuCtxSetCurrent(void *context) { return context ? OK : INVALID; }
EXPORT int cuCtxGetCurrent(void **context) { *context = &used; return OK; }
EXPORT int cuCtxGetDevice(int *device) { *device = 0; return OK; }
EXPORT int cuDeviceGetCount(int *count) { *count = 1; return OK; }
EXPORT int cuDriverGetVersion(int *version) { *version = 12080; return OK; }
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = limit(); return OK; }
EXPORT int cuDeviceGetAttribute(int *value, int what, int device)
{
    (void)device;
    *value = what == 16 ? 80 : 0;
    return OK;
}
EXPORT int cuMemGetInfo_v2(size_t *free_, size_t *total) { *total = limit(); *free_ = *total - used; return OK; }

static int take(void **place, size_t size, int counted)
{
    if (counted && used + size > limit())
        return NO_MEMORY;
    if (getenv("STANDIN_CRASH") && ++allocations == 3)
        raise(SIGSEGV);
    size_t *block = malloc(sizeof(size_t));
    *block = counted ? size : 0;
    used += *block;
    *place = block;
    return OK;
}
EXPORT int cuMemAlloc_v2(void **place, size_t size) { return take(place, size, 1); }
EXPORT int cuMemAllocManaged(void **place, size_t size, unsigned flags) { return flags ? take(place, size, 1) : INVALID; }
EXPORT int cuMemAllocHost_v2(void **place, size_t size) { return take(place, size, 0); }
EXPORT int cuMemFree_v2(void *place) { used -= *(size_t *)place; free(place); return OK; }
EXPORT int cuMemFreeHost(void *place) { return cuMemFree_v2(place); }

EXPORT int cuModuleLoadData(void **module, const char *image)
{
    *module = &busy_until;
    return strstr(image, ".entry work(") ? OK : INVALID;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return strcmp(name, "work") ? INVALID : OK;
}
EXPORT int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                          unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)shared, (void)stream, (void)extra;
    if (!function || !x || !y || !z || !tx || !ty || !tz)
        return INVALID;
    while (getenv("STANDIN_HANG"))
        sleep(1);
    const char *text = getenv("STANDIN_LAX") ? NULL : getenv("CUDA_DEVICE_SM_LIMIT");
    uint64_t length = (uint64_t) * (uint32_t *)parameters[0] * 100 / (text ? strtoull(text, NULL, 10) : 100);
    uint64_t start = now();
    busy_until = (busy_until > start ? busy_until : start) + length;
    return OK;
}
EXPORT int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(uint64_t)); return OK; }
EXPORT int cuEventRecord(void *event, void *stream) { (void)stream; *(uint64_t *)event = busy_until; return OK; }
EXPORT int cuEventQuery(void *event) { return now() >= *(uint64_t *)event ? OK : NOT_READY; }
EXPORT int cuEventSynchronize(void *event) { wait_until(*(uint64_t *)event); return OK; }
EXPORT int cuCtxSynchronize(void) { wait_until(busy_until); return OK; }
