"""Pods go where their volumes can be: claims, zones, limits of attached volumes.

Of upstream's plugins this much: claims bound to volumes hold pods to the nodes and zones of these; unbound claims that
wait for a pod go where their class may provide. Choosing among volumes by size, and telling the provisioner which node
it became, are left to others.
"""
