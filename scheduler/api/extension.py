"""Koordinator's labels and annotations that belong to no single API group, and the names of its parts."""

KOORD_SCHEDULER = "koord-scheduler"

GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"

DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"

SPINE_LABEL = "network.topology.nvidia.com/spine"
BLOCK_LABEL = "network.topology.nvidia.com/block"
