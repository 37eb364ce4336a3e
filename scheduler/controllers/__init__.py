"""Koordinator's manager, as far as it serves usage reports and CPU normalization: NodeMetrics and node annotations."""
