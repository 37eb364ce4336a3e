"""The core: objects come in, decisions come out, without I/O. `cycle.py` is the way of one pod, from top to bottom."""
