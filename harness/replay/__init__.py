"""Replays of recorded GPU traces against placement policies or the scheduler, with curves and comparisons."""
