"""A device plugin for real kubelets: containers get the devices that the scheduler allocated to their pod.

Imports the readers of devices (`harness.devices`) and the node agents' parts (`harness.nodes`); nothing imports it but
commands and backends.
"""
