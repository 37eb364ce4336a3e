"""Default values of built-in kinds: what kube-apiserver writes into an object that its author left out.

Here: pure functions that complete an object in place, and the QoS class that follows from a pod's requests and limits.
Not here: defaults from the schemas of custom resources (`schemas`), and defaults that depend on other objects
(`admission`).
"""
