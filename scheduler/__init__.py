"""A scheduler with Koordinator's plugins, its descheduler, manager and webhooks; it runs on any API server.

`cycle.py` is the core, which decides without I/O; `shell.py` connects it with an API server. It imports nothing of
`seatrial.harness`. Reasons for its structure are in DESIGN.md.
"""
