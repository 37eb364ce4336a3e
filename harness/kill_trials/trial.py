"""One kill trial: the mixed load, a scheduler that is killed and succeeded, its connection in trouble, and the verdict.

After each kill the objects are checked as plain JSON. At the end all trouble is over: the checks for a cluster at rest
follow, then there is room for all, and each pod must get a node. An auditor follows all the time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from seatrial.harness.audit.running import audited
from seatrial.harness.clusters.fault_injection.transport import Link, bindings, every, writes
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.kill_trials.load import Load
from seatrial.harness.kill_trials.plain_checker import unplaced, wrong_at_rest, wrong_now

LATEST = 240.0  # seconds after which a fault of a connection ends
REST = 400.0  # seconds: the longest schedule timeout that matters, backoffs, and the retry of waiting pods
PATIENCE = 1200.0  # seconds for all pods to get their nodes, once there is room


# A DeschedulerConfiguration for migration jobs of users alone. Three jobs of a Deployment run at a time.
# With an interval of 0 the process would end after its first round.
DESCHEDULER: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "1h",
    "profiles": [
        {
            "name": "trial",
            "plugins": {
                point: {"disabled": [{"name": "*"}], "enabled": [{"name": "MigrationController"}]}
                for point in ("evict", "filter")
            },
            "pluginConfig": [
                {
                    "name": "MigrationController",
                    "args": {
                        "schedulerNames": ["default-scheduler"],
                        "evictQPS": "10",
                        "evictBurst": 10,
                        "maxMigratingPerWorkload": 3,
                        "maxUnavailablePerWorkload": 3,
                        "maxMigratingPerNode": 100,
                        "skipCheckExpectedReplicas": True,
                        "objectLimiters": {"workload": {"duration": "0s"}},
                    },
                }
            ],
        }
    ],
}
# A scheduler whose watch is late evicts for a pod that was deleted minutes ago, and binds pods to a node that was; it
# cannot know better.
NOT_JUDGED = frozenset({"AUD-110", "AUD-501"})


class Killable(Protocol):
    """The scheduler of a trial, or its pair; the descheduler as well."""

    @property
    def links(self) -> Sequence[Link]:
        """Connections to the API server that can be made to fail."""

    def kill(self) -> None: ...

    def start_again(self) -> None: ...


class Process(Protocol):
    """A scheduler or a descheduler that is started anew, as `Subject` and `Descheduler`."""

    def kill(self) -> None: ...

    def start_again(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Restarted:
    """One process that is started anew after each kill, with a connection that works meanwhile."""

    process: Process
    link: Callable[[], Link]

    @property
    def links(self) -> Sequence[Link]:
        return [self.link()]

    def kill(self) -> None:
        self.process.kill()

    def start_again(self) -> None:
        _heal(self.link())
        self.process.start_again()


@dataclass(frozen=True, slots=True)
class Pauses:
    """The longest waits of a trial, in seconds of the cluster's clock."""

    before_kill: float = 4.0
    before_start: float = 3.0
    after_start: float = 40.0  # a standby leads after some 17
    late: float = LATEST
    rest: float = REST
    patience: float = PATIENCE


@dataclass(slots=True)
class Outcome:
    """What a trial found."""

    kills: int = 0
    steps: int = 0
    bound: int = 0
    wrong: list[str] = field(default_factory=list)


def run_trial(
    cluster: Cluster,
    scheduler: Killable,
    descheduler: Killable | None,
    *,
    seed: int,
    kills: int,
    pauses: Pauses = Pauses(),
    load_kind: type[Load] = Load,
    on_kill: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Kill `scheduler`, or now and then `descheduler`, `kills` times under a load. The cluster is empty before."""
    random, outcome = Random(seed), Outcome()  # noqa: S311 chooses faults
    load, troubles = load_kind(cluster, random), Troubles(cluster, random, pauses.late)

    def wait(most: float) -> None:
        cluster.pass_time(random.uniform(0, most))

    def check(names: Sequence[str], when: str) -> None:
        outcome.wrong += [f"{when}: {text}" for text in names]

    with audited(cluster) as audit:
        load.begin()
        for number in range(kills):
            troubles.begin([*scheduler.links, *(descheduler.links if descheduler is not None else ())])
            for _ in range(random.randint(2, 8)):
                load.step()
                outcome.steps += 1
                troubles.catch_up()
                wait(pauses.before_kill)
            victim = descheduler if descheduler is not None and random.random() < 0.2 else scheduler
            victim.kill()
            outcome.kills += 1
            on_kill(number)
            check(wrong_now(load.all()), f"kill {number}")
            wait(pauses.before_start)
            victim.start_again()
            wait(pauses.after_start)
        troubles.end()
        cluster.pass_time(pauses.rest)
        check(wrong_at_rest(load.all()), "at rest")
        load.make_room()
        cluster.wait(lambda: not unplaced(load.all()), within=pauses.patience)
        cluster.pass_time(pauses.rest)
        last = load.all()
        check([*unplaced(last), *wrong_at_rest(last)], "with room for all")
        audit.check_state()
        violations = [
            violation for violation in audit.violations if violation.invariant not in NOT_JUDGED | load.not_judged
        ]
        outcome.wrong += [f"auditor: {violation}" for violation in violations]
        outcome.bound = sum(bool(pod["spec"].get("nodeName")) for pod in last["Pod"])
    return outcome


class Troubles:
    """Faults of connections for a random time: silent watches, and answers that are lost, late or refusals."""

    def __init__(self, cluster: Cluster, random: Random, most: float) -> None:
        self._cluster, self._random, self._most = cluster, random, most
        self._ends: list[tuple[float, Link, Callable[[Link], None]]] = []
        self._kinds: list[Callable[[Link], None]] = [
            lambda link: link.lose_answers(bindings),
            lambda link: link.lose_answers(writes),
            lambda link: link.refuse(503, writes),
            lambda link: link.refuse(500, bindings),
            lambda link: link.refuse(429, every),
            lambda link: link.break_streams(),
            lambda link: link.cut(),
            _slow,
            _late,
            _late,
        ]

    def begin(self, links: Sequence[Link]) -> None:
        """End what is over, and begin something at some of the connections."""
        now = self._cluster.clock.monotonic()
        for end in [end for end in self._ends if end[0] <= now]:
            self._ends.remove(end)
            _heal(end[1])
        for link in links:
            for kinds in ([Link.hold_streams], self._kinds):
                if self._random.random() < 0.4:
                    kind = self._random.choice(kinds)
                    kind(link)
                    self._ends.append((now + self._random.uniform(0, self._most), link, kind))

    def catch_up(self) -> None:
        """Late watches show what has happened so far, and not what follows from it."""
        for _, link, kind in self._ends:
            if kind is _late:
                link.heal()
                kind(link)

    def end(self) -> None:
        """End everything."""
        for _, link, _ in self._ends:
            _heal(link)
        self._ends.clear()


def _slow(link: Link) -> None:
    link.delay = 2.0


def _late(link: Link) -> None:
    """What the client has bound it learns neither from the answer nor, for a while, from the watch."""
    link.lose_answers(bindings)
    link.hold_streams()


def _heal(link: Link) -> None:
    link.delay = 0.0
    link.heal()
