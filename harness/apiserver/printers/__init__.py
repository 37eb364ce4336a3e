"""Table printers of the built-in kinds: their columns, and the cells of one object, as `kubectl get` shows them.

Follows Kubernetes `pkg/printers/internalversion`. Each module holds related kinds.
"""
