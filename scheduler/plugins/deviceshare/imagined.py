"""Devices as preemption imagines them, with some pods gone."""

from scheduler.framework.reserved import MATCHED
from scheduler.framework.state import CycleState, StateKey
from scheduler.plugins.deviceshare import inside
from scheduler.plugins.deviceshare.cache import NodeDevices
from scheduler.plugins.deviceshare.states import DeviceState
from scheduler.plugins.reservation.book import ReservationBook

# By node: the devices' state, and the uids of who is gone.
_TRIAL: StateKey[dict[str, tuple[DeviceState, frozenset[str]]]] = StateKey("DeviceShare/trial")


def imagine(state: CycleState, devices: NodeDevices, book: ReservationBook, victim: str, sign: int) -> None:
    """Have the pod of that uid be gone (-1), or one that is gone be back (1); without devices, nothing changes."""
    holding = devices.held.get(victim)
    if holding is None:
        return
    trials = state.get(_TRIAL) or {}
    there, gone = trials.get(devices.name, (devices.state, frozenset()))
    if (victim in gone) is not (sign > 0):
        return
    after, left_out = there.moved(holding.shares, sign), gone ^ {victim}
    reserved = book.holding(victim)
    overlooked = (state.get(MATCHED) or {}).get(devices.name, ())
    if reserved is not None and reserved.annotation and reserved.node == devices.name and reserved not in overlooked:
        after = after.moved(inside.left(devices, reserved, gone), -1)  # what it had is its reservation's (R63)
        after = after.moved(inside.left(devices, reserved, left_out), 1)
    state[_TRIAL] = {**trials, devices.name: (after, left_out)}  # states that were forked earlier keep theirs


def view(state: CycleState, devices: NodeDevices) -> NodeDevices:
    """A node's devices with who has them, as preemption imagines both if it does."""
    trials = state.get(_TRIAL)
    if trials is None or devices.name not in trials:
        return devices
    there, gone = trials[devices.name]
    return devices.imagined(there, {uid: one for uid, one in devices.held.items() if uid not in gone})


def imagined(state: CycleState, devices: NodeDevices) -> DeviceState:
    """The state of a node's devices, likewise."""
    trials = state.get(_TRIAL)
    return trials[devices.name][0] if trials is not None and devices.name in trials else devices.state
