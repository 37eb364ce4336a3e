"""Koordinator's admission webhooks: device requests of pods, ElasticQuotas, amplified amounts of nodes."""
