"""Cambricon MLUs: their `Hardware`, and in `abi/` the stand-in for libcndev.so."""
