"""NodeNUMAResource: CPU binding, and resources of a pod from the same NUMA nodes."""
