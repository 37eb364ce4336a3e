"""DefaultPreemption: which node a more important pod gets, and who has to go for it."""
