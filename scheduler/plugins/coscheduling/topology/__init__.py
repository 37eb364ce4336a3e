"""Network topology: the tree of domains that node labels make, and the choice of a domain for a gang."""
