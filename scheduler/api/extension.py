"""Koordinator's labels and annotations outside any single API group, names of its components, and our annotation."""

KOORD_SCHEDULER = "koord-scheduler"

SCHEDULER_NAME_LABEL = "scheduling.koordinator.sh/scheduler-name"

POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"

DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"

# Annotation: the extension point at which the plugin ErrorInjection raises, as Filter, or Filter/2 for two times.
RAISES_IN = "seatrial.dev/raises-in"

SPINE_LABEL = "network.topology.nvidia.com/spine"
BLOCK_LABEL = "network.topology.nvidia.com/block"
