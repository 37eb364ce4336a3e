"""Cases about the limits that a container has on its devices, and about their use as reported."""
