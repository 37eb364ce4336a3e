"""Users for a Locust file of your own, which `seatrial load --locustfile FILE` runs (docs/load.md)."""

from seatrial.harness.load.locustfile import LoadUser
from seatrial.harness.load.users_beside import GangUser, NativeGangUser, NodeUser, QuotaUser

__all__ = ["GangUser", "LoadUser", "NativeGangUser", "NodeUser", "QuotaUser"]
