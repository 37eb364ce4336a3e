"""The shell: connects the core with an API server, and writes its decisions."""
