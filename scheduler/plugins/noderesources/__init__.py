"""NodeResourcesFit, NodeResourcesBalancedAllocation and Koordinator's resource scores."""
