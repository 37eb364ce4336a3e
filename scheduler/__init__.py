"""A scheduler with Koordinator's plugins, its descheduler, manager and webhooks; it runs on any API server.

`core/cycle.py` decides without I/O; `shell/loop.py` connects it with an API server. Nothing of `seatrial.harness` is
imported. Reasons for the structure are in DESIGN.md.
"""
