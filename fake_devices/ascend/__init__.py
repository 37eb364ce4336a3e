"""Huawei Ascend NPUs: their `Hardware`, and in `abi/` the stand-in for libdcmi.so."""
