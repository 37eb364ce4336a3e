"""What the programs share as processes: signals and Leases, HTTP routes, metrics."""
