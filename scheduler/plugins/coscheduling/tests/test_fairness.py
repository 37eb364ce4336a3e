"""Gangs that never fit beside pods that do: whatever the gangs are, each pod starts within a bound of virtual time.

The bound is that of docs/gangs.md: twice the longest waiting time, and the maximum backoff.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.podgroup import GANG_MODE, GANG_WAITING_TIME
from seatrial.scheduler.config import parse
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light, member

BACKOFF = 10  # the longest
PROFILES = ("default-scheduler", "second")


@dataclass(frozen=True)
class Unfit:
    """A gang with members that have room, and one that has none anywhere."""

    at: int
    sizes: tuple[int, ...]  # CPUs of the members that have room
    mode: str
    wait: int
    priority: int
    kind: str  # PodGroup, annotations, the same with a second gang in its group, or gather rules
    profile: str

    def submit(self, rig: GangRig, name: str) -> None:
        whole = len(self.sizes) + 1
        if self.kind == "annotations":
            made = [light(f"{name}-{i}", name, str(whole), cpu=cpu) for i, cpu in enumerate((*self.sizes, 1000))]
            made = [one.annotation(GANG_MODE, self.mode).annotation(GANG_WAITING_TIME, f"{self.wait}s") for one in made]
        else:
            groups = {}
            if self.kind == "groups":
                groups["groups"] = f'["default/{name}", "default/{name}-more"]'
                rig.group(gang(f"{name}-more", 1).waiting_time(self.wait), mode=self.mode, **groups)
                rig.submit(self.dressed(member(f"{name}-more-0", f"{name}-more")))
            built = gang(name, whole).waiting_time(self.wait)
            if self.kind == "gather":
                built = built.gather("NodeTopologyLayer", "PreferGather")
            rig.group(built, mode=self.mode, **groups)
            made = [member(f"{name}-{i}", name, cpu=cpu) for i, cpu in enumerate((*self.sizes, 1000))]
        rig.submit(*map(self.dressed, made))

    def dressed(self, built: PodBuilder) -> PodBuilder:
        return built.priority(self.priority).scheduler(self.profile)


unfit = st.builds(
    Unfit,
    at=st.integers(0, 40),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    mode=st.sampled_from(["NonStrict", "NonStrict", "Strict"]),
    wait=st.sampled_from([1, 5, 20, 45]),
    priority=st.sampled_from([0, 0, 5]),
    kind=st.sampled_from(["PodGroup", "annotations", "groups", "gather"]),
    profile=st.sampled_from(PROFILES),
)
singles = st.tuples(st.integers(0, 60), st.integers(1, 4), st.sampled_from(PROFILES))  # second, CPUs, profile


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([4, 5, 6]), min_size=1, max_size=3),
    st.lists(unfit, min_size=1, max_size=5),
    st.lists(singles, min_size=1, max_size=3),
)
def test_gangs_that_never_fit_stop_no_pod(
    nodes: list[int], gangs: list[Unfit], young: list[tuple[int, int, str]]
) -> None:
    """A pod ends when it starts, so that it is in nobody's way. The others may cost each pod one backoff."""
    rig = GangRig(
        parse(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": name} for name in PROFILES],
            }
        )
    )
    for number, cpu in enumerate(nodes):
        rig.node(f"n{number}", cpu=str(cpu))
    bound = 2 * max(one.wait for one in gangs) + BACKOFF * len(young) + 1  # the test looks once a second
    created: dict[str, int] = {}
    for second in range(60 + bound + 2):
        for number, one in enumerate(gangs):
            if one.at == second:
                one.submit(rig, f"g{number}")
        for number, (at, cpu, profile) in enumerate(young):
            if at == second:
                rig.submit(pod(f"p{number}").request(cpu=cpu).scheduler(profile))
                created[f"p{number}"] = second
        rig.run()
        for name in [name for name in created if rig.where(name)]:
            rig.delete(name)
            del created[name]
        rig.run()
        late = [name for name, since in created.items() if second - since > bound]
        assert not late, f"{late} had room wherever gangs held places, and did not start in {bound} s"
        rig.clock.advance(1)
