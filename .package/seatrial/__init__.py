"""Hardware-in-the-loop tests and benchmarks for accelerator scheduling on Kubernetes.

`seatrial.testing` is the stable surface for suites outside of this repository. All other modules may change between
versions without notice.
"""

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up on first use: reading the metadata would cost each process some milliseconds."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib.metadata

    return importlib.metadata.version("seatrial")
