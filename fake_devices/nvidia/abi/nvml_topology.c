/* Topology: common PCIe ancestors, NVLinks by port, affinity masks, fabric. */
#include "call.h"

enum { INTERNAL = 0, SINGLE = 10, HOST_BRIDGE = 30, NODE = 40, SYSTEM = 50 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };
enum { P2P_OK = 0, P2P_TOPOLOGY_NOT_SUPPORTED = 5 };

static uint level(const struct DeviceRecord *a, const struct DeviceRecord *b)
{
    int same_root = !strncmp(a->root, b->root, sizeof a->root);
    if (a->domain == b->domain && a->bus == b->bus && a->device == b->device)
        return INTERNAL;
    if (same_root && a->switch_bus && a->switch_bus == b->switch_bus)
        return SINGLE;
    if (same_root)
        return HOST_BRIDGE;
    return a->numa == b->numa ? NODE : SYSTEM;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t handle, nvmlDevice_t other, uint *out)
{
    DEVICE_CALL;
    struct DeviceRecord second;
    nvmlReturn_t code = nvml_enter(__func__, other, &second, &slice);
    if (code || !out)
        return code ? code : INVALID_ARGUMENT;
    *out = level(&record, &second);
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t handle, uint wanted, uint *count, nvmlDevice_t *out)
{
    DEVICE_CALL;
    if (!count)
        return INVALID_ARGUMENT;
    uint found = 0;
    for (uint at = 0; at < table_header->devices.count; at++) {
        const struct DeviceRecord *other = table_device(at);
        if (other == handle || other->vendor != NVIDIA || other->kind || !other->present)
            continue;
        if (level(&record, other) != wanted)
            continue;
        if (out && found < *count)
            out[found] = other;
        found++;
    }
    *count = out && *count < found ? *count : found; /* a first call without room is answered with the count */
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t handle, nvmlDevice_t other, uint index, uint *status)
{
    DEVICE_CALL;
    struct DeviceRecord second;
    nvmlReturn_t code = nvml_enter(__func__, other, &second, &slice);
    (void)index;
    if (code || !status)
        return code ? code : INVALID_ARGUMENT;
    *status = record.link_count && second.link_count ? P2P_OK : P2P_TOPOLOGY_NOT_SUPPORTED;
    return OK;
}

/* The record of one port; 0 if the card has no such port. */
static int port_of(nvmlDevice_t handle, uint port, struct LinkRecord *link)
{
    uint32_t own = record_number(handle, 0);
    for (uint at = 0; at < table_header->links.count; at++) {
        table_read(table_row(&table_header->links, at), link, sizeof *link);
        if (link->device == own && link->port == port)
            return 1;
    }
    return 0;
}

#define LINK_CALL                                                                                                      \
    DEVICE_CALL;                                                                                                       \
    struct LinkRecord port;                                                                                            \
    if (!out || link >= 36)                                                                                            \
        return INVALID_ARGUMENT;                                                                                       \
    if (slice || !port_of(handle, link, &port))                                                                        \
        return NOT_SUPPORTED

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, uint link, uint *out)
{
    LINK_CALL;
    *out = port.up;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, uint link, uint *out)
{
    LINK_CALL;
    *out = port.peer < 0 ? REMOTE_SWITCH : REMOTE_GPU;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, uint link, PciInfo *out)
{
    LINK_CALL;
    struct DeviceRecord peer;
    if (port.peer >= 0) {
        table_read(table_device(port.peer), &peer, sizeof peer);
    } else { /* switches are not in the table; they have a bus of their own */
        memset(&peer, 0, sizeof peer);
        peer.bus = 0x05 + link % 4;
        peer.pci_id = 0x22a310de;
    }
    pci_info(&peer, out);
    return OK;
}
ALIAS(nvmlDeviceGetNvLinkRemotePciInfo, (nvmlDevice_t handle, uint link, PciInfo *out),
      nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, out))

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, uint link, uint counter, ull *out)
{
    LINK_CALL;
    if (counter > 3)
        return INVALID_ARGUMENT;
    *out = port.errors[counter];
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, uint words, unsigned long *mask, uint scope)
{
    DEVICE_CALL;
    (void)scope;
    if (!mask || !words)
        return INVALID_ARGUMENT;
    if (record.numa < 0)
        return NOT_SUPPORTED;
    memset(mask, 0, words * sizeof *mask);
    if ((uint)record.numa < words * 64)
        mask[record.numa / 64] = 1ul << record.numa % 64;
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t handle, int *node)
{
    DEVICE_CALL;
    (void)node;
    return NOT_SUPPORTED; /* only where a card's memory is a NUMA node of the host */
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, FabricInfo_v3 *info)
{
    DEVICE_CALL;
    if (!info)
        return INVALID_ARGUMENT;
    uint version = info->version >> 24, bytes = info->version & 0xffffff;
    if (!(version == 2 && bytes == FABRIC_V2_BYTES) && !(version == 3 && bytes == sizeof *info))
        return ARGUMENT_VERSION_MISMATCH;
    memset(info->clusterUuid, 0, sizeof info->clusterUuid);
    info->status = OK;
    info->cliqueId = 0;
    info->state = 1; /* not started: no catalogue entry is part of a fabric */
    info->healthMask = 0;
    if (version == 3) /* a v2 caller has no room for it */
        info->healthSummary = 0;
    return OK;
}
