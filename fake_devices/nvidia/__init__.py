"""NVIDIA GPUs: their `Hardware`, and NVML twice: as a library (`abi/`) and as a Python object."""
