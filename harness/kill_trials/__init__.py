"""Kill trials: a scheduler is killed again and again under a mixed load, and nothing may be wrong afterwards."""
