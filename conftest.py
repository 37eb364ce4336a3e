"""Activates the pytest plugin; everything else about pytest is in fixtures/."""

pytest_plugins = ["seatrial.testing"]
