"""A state machine of a PodGroup's status against a model: members come, are bound, run, end and go; minMember changes.

The model counts the members and knows what each phase says about them. It does not know the order of the transitions,
but where they end when nothing changes any more.
"""

from collections import Counter

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.podgroup import PodGroup
from seatrial.scheduler.plugins.coscheduling.phases import next_status
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member

FINAL = {"Finished", "Failed"}


class PhaseMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = GangRig()
        self.number = 0
        self.time = 0
        self.members: dict[str, str] = {}  # name → "Pending", "Bound", "Running"
        self.over: Counter[str] = Counter()  # members that ended, by phase
        self.minimum = 2
        self.started: str | None = None  # scheduleStartTime, as first written
        self.phases = [""]
        self.write({})

    @property
    def pod_group(self) -> PodGroup:
        return self.rig.cache.objects["default/g"]

    def write(self, status: dict[str, object]) -> None:
        """The PodGroup as the API server has it after a merge patch of its status."""
        known = self.rig.cache.objects.get("default/g")
        before = msgspec.to_builtins(known.status) if known is not None else {}
        manifest = {
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": self.minimum},
            "status": {**before, **status},
        }
        self.rig.cache.set_object(msgspec.convert(manifest, PodGroup))

    def step(self) -> bool:
        """One transition, as the controller writes it. Returns whether there was one."""
        self.time += 1
        gang = self.rig.gang("default/g")
        ended = self.rig.cache.ended.get("default/g", {})
        status = next_status(self.pod_group, gang, ended, f"2026-01-01T00:00:{self.time % 60:02}Z")
        if status is None:
            return False
        self.write(status)
        if self.pod_group.status.phase != self.phases[-1]:
            self.phases.append(self.pod_group.status.phase)
        self.started = self.started or self.pod_group.status.schedule_start_time
        return True

    def deliver(self, name: str, phase: str, *, bound: bool) -> None:
        pod: Pod = self.rig.pod(member(name, "g"))
        spec = msgspec.structs.replace(pod.spec, node_name="n" if bound else "")
        self.rig.core.intake.set_pod(
            msgspec.structs.replace(pod, spec=spec, status=msgspec.structs.replace(pod.status, phase=phase))
        )

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule()
    def create(self) -> None:
        self.number += 1
        name = f"p{self.number}"
        self.members[name] = "Pending"
        self.deliver(name, "Pending", bound=False)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), then=st.sampled_from(["Bound", "Running", "Succeeded", "Failed", "gone"]))
    def change(self, data: st.DataObject, then: str) -> None:
        """A member is bound, runs, ends or is deleted; one that has no node is bound first."""
        name = data.draw(st.sampled_from(sorted(self.members)))
        if then == "gone":
            del self.members[name]
            self.rig.delete(name)
            return
        if self.members[name] == "Pending":
            self.deliver(name, "Pending", bound=True)
        if then in {"Succeeded", "Failed"}:
            del self.members[name]
            self.over[then] += 1
        else:
            self.members[name] = then
        self.deliver(name, "Pending" if then == "Bound" else then, bound=True)

    @rule(minimum=st.integers(1, 4))
    def change_minimum(self, minimum: int) -> None:
        self.minimum = minimum
        self.write({})

    @rule()
    def reconcile(self) -> None:
        self.step()

    @rule()
    def settle(self) -> None:
        """Without further events the status comes to rest, with the phase that the members say."""
        for _ in range(6):
            if not self.step():
                break
        else:
            raise AssertionError(f"the status does not come to rest: {self.phases}")
        status = self.pod_group.status
        if status.phase in FINAL:
            return
        members = sum(self.over.values()) + len(self.members)
        assert (status.scheduled, status.running, status.succeeded, status.failed) == self.counts()
        scheduled, running, succeeded, failed = self.counts()
        if not members or (members < self.minimum and set(self.phases[1:]) == {"Pending"}):
            expected = "Pending"
        elif succeeded >= self.minimum:
            expected = "Finished"
        elif failed and failed + running + succeeded >= self.minimum:
            expected = "Failed"
        elif scheduled < self.minimum:
            expected = "Pending" if self.phases[-1] == "Pending" and members < self.minimum else "Scheduling"
        else:
            expected = "Running" if running + succeeded >= self.minimum else "Scheduled"
        assert status.phase == expected, (self.phases, self.members, self.over, self.minimum)

    def counts(self) -> tuple[int, int, int, int]:
        states = Counter(self.members.values())
        over = sum(self.over.values())
        return (
            states["Bound"] + states["Running"] + over,
            states["Running"],
            self.over["Succeeded"],
            self.over["Failed"],
        )

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def final_phases_stay(self) -> None:
        assert not FINAL & set(self.phases[:-1]), self.phases

    @invariant()
    def the_start_is_written_once(self) -> None:
        assert self.pod_group.status.schedule_start_time == self.started
        assert ("Scheduling" in self.phases) is (self.started is not None)


TestPhases = PhaseMachine.TestCase
TestPhases.settings = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True)
