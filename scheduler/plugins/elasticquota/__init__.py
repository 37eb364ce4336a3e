"""ElasticQuota: shares of the cluster for groups of pods, with borrowing."""
