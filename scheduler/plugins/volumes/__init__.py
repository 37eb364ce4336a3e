"""Volume plugins: claims, zones, and limits of attached volumes.

A subset of upstream: claims bound to volumes restrict pods to the nodes and zones of these; unbound claims that wait
for a pod go where their class can provision. The choice among volumes by size, and telling the provisioner the node,
are left to other components.
"""
