"""NodeNUMAResource: CPUs bound to pods, and resources taken from the same NUMA nodes."""
