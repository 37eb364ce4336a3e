"""Network topology: gangs gather in domains of spines and blocks."""
