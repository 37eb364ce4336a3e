"""The scheduler's copy of nodes and pods: assumed and bound pods, columns of amounts, equivalence classes.

Here: `NodeInfo` and `PodInfo`, sums by node, indexes by label, image, owner and volume. Not here: devices, NUMA nodes
and quotas, which their plugins keep.
"""
