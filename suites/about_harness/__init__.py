"""Cases about the harness itself: its verdicts on a scheduler and on a faulty client, and two runs at a time."""
