"""Checks of HAMi-core's limits on a real GPU, without a cluster: tenants, probes, samples, verdicts."""
