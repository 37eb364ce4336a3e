"""Cases about the speed of a scheduler: floors of throughput, costs of features, a recorded trace."""
