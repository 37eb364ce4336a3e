"""The descheduler: finds pods that should leave their node, and migrates them.

Follows Koordinator `pkg/descheduler`. `state.py` holds what is known of the cluster, `rounds.py` runs plugins,
`migration/` the PodMigrationJob controller; none of them does I/O. `shell.py` connects them with an API server.
"""
