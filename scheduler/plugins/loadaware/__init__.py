"""LoadAwareScheduling: filter and score nodes by the usage that NodeMetric objects report."""
