"""CEL with Kubernetes' functions, for rules of the API server and selectors of devices."""
