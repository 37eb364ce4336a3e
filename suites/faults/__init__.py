"""What breaks, leaves the pool; what heals, comes back."""
