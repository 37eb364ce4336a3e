"""PodTopologySpread: spread replicas evenly over zones, racks or hosts, as upstream."""
