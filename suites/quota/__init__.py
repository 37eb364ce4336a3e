"""Elastic quotas: what pods of a quota may use, and what the scheduler publishes about it."""
