"""HTTP routes of the scheduler: health, metrics, debug flags, views of nodes and pods."""
