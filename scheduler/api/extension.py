"""Koordinator's labels and annotations outside any single API group, and names of its components."""

KOORD_SCHEDULER = "koord-scheduler"

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"

DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"

SPINE_LABEL = "network.topology.nvidia.com/spine"
BLOCK_LABEL = "network.topology.nvidia.com/block"
