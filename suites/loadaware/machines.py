"""Profiles of load-aware scheduling, nodes of 20 cores and 64 Gi, and pods that ask for hardly anything."""

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL

RELEASED, MEAN, PEAK = "load-aware", "load-aware-mean", "load-aware-peak"
ESTIMATES = "load-aware-estimates"  # pods may have factors and times of their own
PROD, BATCH = "koord-prod", "koord-batch"
OVER, OVER_PEAK = "node(s) cpu usage exceed threshold", "node(s) cpu aggregated usage exceed threshold"


def machines(trial: Trial, *names: str) -> None:
    trial.add(*(node(name).cpu(20).memory("64Gi") for name in names))


def small(name: str, profile: str = RELEASED, *, band: str = BATCH) -> PodBuilder:
    """A pod that asks for hardly anything, so that its own estimate does not decide."""
    return pod(name).request(cpu="10m", memory="10Mi").label(PRIORITY_CLASS_LABEL, band).scheduler(profile)


def admitted(expect: Expect, name: str, saying: str, *, scheduler: str = "") -> None:
    """The pod is refused with `saying`, or ("") bound."""
    if saying:
        expect.pending(name, saying=saying)
    else:
        expect.bound(name)
        expect.refusal(scheduler=scheduler)
