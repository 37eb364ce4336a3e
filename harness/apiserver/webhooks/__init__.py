"""Admission webhooks: matching of writes, AdmissionReview calls, and the application of responses."""
