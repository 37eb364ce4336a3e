"""What `kubectl get` prints for each built-in kind: the columns, and the cells of one object.

Follows Kubernetes `pkg/printers/internalversion`; a file holds the kinds that are read together.
"""
