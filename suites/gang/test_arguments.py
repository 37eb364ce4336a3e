"""Arguments of Coscheduling that other cases leave at their defaults. All profiles share gangs: a scheduler each."""

from pathlib import Path

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.podgroup import GANG_MODE, GANG_WAITING_TIME
from seatrial.suites.faults.schedulers import with_arguments
from seatrial.suites.gang.members import bound, names

pytestmark = [pytest.mark.needs(Capability.VIRTUAL_TIME)]  # a scheduler of its own


@pytest.mark.feature("GANG-1.match-policy")
@pytest.mark.case("GA-303", severity="normal", source="spec gang-topology-preemption (defaultMatchPolicy)")
@pytest.mark.parametrize("light", [False, True], ids=["pod-group", "annotations"])
@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting"])
def test_the_match_policy_of_gangs_that_have_none(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, *, light: bool, policy: str
) -> None:
    """A gang of two is bound, and a third member comes: it is bound by one policy, and waits by the other."""
    subject, args = pytestconfig.getoption("--seatrial-subject"), {"defaultMatchPolicy": policy}
    with with_arguments(seatrial_backend, subject, tmp_path, "Coscheduling", args, profile=DEFAULT_SCHEDULER) as trial:
        trial.add(node("n1").cpu(4))
        members = [pod(name).request(cpu=1) for name in names("train", 3)]
        if light:
            members = [member.in_light_gang("train", 2) for member in members]
        else:
            trial.apply(gang("train", 2))
            members = [member.in_gang("train") for member in members]
        trial.submit(*members[:2])
        expect = Expect(trial)
        expect.bound(*names("train", 2))

        trial.submit(members[2])

        expect.stable(seconds=12)
        assert ("train-2" in bound(trial)) == (policy == "once-satisfied")


@pytest.mark.feature("GANG-1.timeout")
@pytest.mark.case("GA-304", severity="normal", source="spec gang-topology-preemption (defaultTimeout)")
@pytest.mark.parametrize("light", [False, True], ids=["pod-group", "annotations"])
@pytest.mark.parametrize("own", ["", "0", "-20"], ids=["none", "zero", "below-zero"])
def test_the_timeout_of_gangs_that_have_none(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, own: str, *, light: bool
) -> None:
    """Two of three members of a NonStrict gang have places, and the third is deleted: another pod gets these places
    after the default timeout of 60 s, and not before. A timeout that is not above 0 is none."""
    subject, args = pytestconfig.getoption("--seatrial-subject"), {"defaultTimeout": "60s"}
    with with_arguments(seatrial_backend, subject, tmp_path, "Coscheduling", args, profile=DEFAULT_SCHEDULER) as trial:
        expect = Expect(trial)
        trial.add(node("n1").cpu(2))
        members = [pod(name).request(cpu=1) for name in names("train", 3)]
        if light:
            members = [member.in_light_gang("train", 3).annotation(GANG_MODE, "NonStrict") for member in members]
            if own:
                members = [member.annotation(GANG_WAITING_TIME, f"{own}s") for member in members]
        else:
            group = gang("train", 3).mode("NonStrict")
            trial.apply(group.waiting_time(int(own)) if own else group)
            members = [member.in_gang("train") for member in members]
        trial.submit(*members)
        expect.stable(seconds=2)
        trial.submit(pod("whole").request(cpu=2))
        expect.stable(seconds=2)
        trial.delete("train-2")  # no further attempt of the gang: two of three members
        trial.pass_time(45)
        assert bound(trial) == []

        expect.bound("whole", within=60)
