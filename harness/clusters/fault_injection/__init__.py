"""A way to an API server that can be made to fail: in process, and as a proxy for schedulers that are processes."""
