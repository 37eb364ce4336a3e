"""NVIDIA's boundary as a file: libnvidia-ml.so.1 beside its table."""

from fake_devices.build import Stand

NVML = Stand(
    soname="libnvidia-ml.so.1",
    sources=tuple(f"nvidia/abi/{name}.c" for name in ("nvml", "nvml_topology", "nvml_events", "nvml_mig")),
    aliases=("libnvidia-ml.so",),
)
