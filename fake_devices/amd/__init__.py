"""AMD GPUs: their `Hardware`, and in `abi/` the stand-in for librocm_smi64.so."""
