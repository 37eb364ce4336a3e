"""Backends: ways to get a cluster, behind one interface (`protocol.py`).

Here: the table of backends, one or more modules for each, nodes and agents of a run on them, injected faults of the
connection. Not here: the embedded API server (`apiserver`), and the life of pods on a node (`nodes`).
"""
