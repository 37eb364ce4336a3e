"""InterPodAffinity: place pods near other pods, or away from them, as upstream."""
