"""What the scheduler's process tells and lets be changed over HTTP: health, metrics, debug flags, its view of nodes."""
