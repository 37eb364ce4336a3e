"""What fails leaves the pool of resources; what recovers returns to it."""
