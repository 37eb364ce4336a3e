"""DefaultPreemption: a node for a more important pod, and the victims on it."""
