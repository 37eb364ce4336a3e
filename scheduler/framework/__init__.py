"""The contract between plugins and the scheduler: extension points, statuses, and what a plugin may use and register.

`extension_points.py` has the base classes of plugins, `accelerations.py` their batch forms, `handle.py` what a plugin
may use. `seatrial.scheduler.engine` runs the plugins.
"""
