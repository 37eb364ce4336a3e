"""Cases about the harness itself: what its runs say of a scheduler, of a rogue client, and of two runs."""
