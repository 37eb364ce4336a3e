"""The auditor: invariants over the events of an API server, on any backend and with any scheduler."""
