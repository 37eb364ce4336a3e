"""Huawei's boundary as a file: libdcmi.so beside its table."""

from fake_devices.build import Stand

DCMI = Stand(
    soname="libdcmi.so", sources=tuple(f"ascend/abi/{name}.c" for name in ("dcmi", "dcmi_faults", "dcmi_vnpu"))
)
