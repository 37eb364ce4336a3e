"""Room on nodes: NodeResourcesFit and NodeResourcesBalancedAllocation, as upstream has them."""
