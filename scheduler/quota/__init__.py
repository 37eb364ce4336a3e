"""Elastic quota arithmetic: trees of quotas and their runtime shares. It does no I/O and uses no API objects."""
