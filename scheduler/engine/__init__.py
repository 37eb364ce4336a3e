"""Runs the plugins of a profile for one pod over all nodes, and keeps their results by equivalence class."""
