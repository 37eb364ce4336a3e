"""Cases about devices, CPUs, NUMA nodes and reservations that pods get."""
