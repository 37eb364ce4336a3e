"""Koordinator's labels and annotations that belong to no single API group, and the names of its parts."""

KOORD_SCHEDULER = "koord-scheduler"

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"

DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"

SPINE_LABEL = "network.topology.nvidia.com/spine"
BLOCK_LABEL = "network.topology.nvidia.com/block"
