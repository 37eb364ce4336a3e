"""Spreading replicas evenly over zones, racks or hosts, as upstream has it."""
