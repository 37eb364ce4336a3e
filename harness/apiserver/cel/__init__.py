"""Kubernetes' CEL: cel-python with Kubernetes' types, functions and macros."""
