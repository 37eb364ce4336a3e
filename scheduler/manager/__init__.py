"""The manager: the part of Koordinator's koord-manager that writes NodeMetrics and ratios of CPU normalization.

The controllers of the scheduler itself (PodGroups, quotas, reservations) are modules of `seatrial.scheduler`.
"""
