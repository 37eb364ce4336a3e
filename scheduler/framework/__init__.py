"""The scheduling framework: extension points, and the engine that runs plugins on many classes and nodes at once.

`extension_points.py` has the base classes of plugins, `accelerations.py` their batch forms, `handle.py` what a plugin
may use. The other modules evaluate and keep results: the score matrix, node signatures, diagnosis, selection.
"""
