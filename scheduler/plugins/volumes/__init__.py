"""Volume plugins: claims, zones, and limits of attached volumes.

Claims bound to volumes restrict pods to the nodes and zones of these. For claims that wait for their first consumer a
volume, or the node where one is to be provisioned, is chosen, written, and waited for.
"""
