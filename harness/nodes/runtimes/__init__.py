"""How a node runs containers: as data, as processes of this machine, or in Docker; with probes, hooks and streams."""
