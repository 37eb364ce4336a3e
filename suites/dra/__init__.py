"""Claims for devices (dynamic resource allocation, resource.k8s.io/v1)."""
