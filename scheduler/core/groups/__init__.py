"""Pod groups in the core: attempts, domains of the network, nominated room, and groups that wait for room."""
