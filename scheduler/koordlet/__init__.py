"""The node agent: measures what pods use, reports it, and keeps best-effort pods from disturbing the others."""
