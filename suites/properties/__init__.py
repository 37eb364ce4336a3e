"""Random stories of small clusters, judged by plain oracles that are written from the specification."""
