"""Kubernetes' protocol buffers: decodes request bodies into the objects that JSON would give, encodes responses.

Here: the wire format, the table of messages and its generator. Not here: which client gets them, and limits of bodies
(`request`).
"""
