"""Users for a Locust file of your own, which `seatrial load --locustfile FILE` runs (docs/load.md)."""

from seatrial.harness.load.locustfile import LoadUser

__all__ = ["LoadUser"]
