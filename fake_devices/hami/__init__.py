"""HAMi-core without a GPU: a stand-in for libcuda.so.1, and writers of its shared regions."""
