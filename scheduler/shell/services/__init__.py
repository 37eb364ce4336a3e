"""The HTTP server of the programs, and the routes of the scheduler: health, metrics, debug flags, nodes and pods."""
