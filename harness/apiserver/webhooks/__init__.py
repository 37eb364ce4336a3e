"""Admission webhooks: who is asked about a write, how the question is put, and what the answer does."""
