"""Cambricon's boundary as a file: libcndev.so beside its table."""

from fake_devices.build import Stand

CNDEV = Stand(
    soname="libcndev.so", sources=tuple(f"cambricon/abi/{name}.c" for name in ("cndev", "cndev_links", "cndev_smlu"))
)
