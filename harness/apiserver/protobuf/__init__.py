"""Decodes request bodies in Kubernetes' protocol buffers into the objects that JSON would give.

Here: the wire format, the table of messages and its generator. Not here: responses, which are JSON for all clients, and
limits of bodies (`request`).
"""
