"""An embedded Kubernetes API server: one object store, two transports."""
