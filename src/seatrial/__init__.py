"""Hardware-in-the-loop tests and benchmarks for accelerator scheduling on Kubernetes.

`seatrial.testing` is the stable surface for suites outside of this repository. All other modules may change between
versions without notice.
"""

import importlib.metadata

__version__ = importlib.metadata.version("seatrial")
