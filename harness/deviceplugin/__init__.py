"""A device plugin for real kubelets: containers get the devices that the scheduler allocated to their pod.

Imports the readers of devices (`harness.devices`) and the node agents' parts (`harness.nodes`); nothing imports it but
commands and backends.
"""

import os

# gRPC's fork handlers hang or abort a process that starts another one while calls run (grpc/grpc, doc/fork_support.md).
# Our children are other programs, which need nothing of gRPC. It is read when the first channel or server is made.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
