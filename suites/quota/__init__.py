"""Elastic quotas: what pods of a quota may use, and what the scheduler tells of it."""
