"""RDMA NICs: their `Hardware`, their files in `/sys`, and the netlink socket that reports their ports."""
