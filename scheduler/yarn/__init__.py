"""Hadoop YARN on batch resources: YARN learns what it may use of a node, Kubernetes what YARN uses (YN-1 to YN-4)."""
