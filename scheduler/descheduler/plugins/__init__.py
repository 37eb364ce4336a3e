"""The strategies: which pods leave, and why."""
