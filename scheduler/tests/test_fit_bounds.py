"""The kept bounds are those that a count over all nodes gives, and no group stays parked that would fit."""

from random import Random

import numpy as np

from seatrial.scheduler.api.builders import gang, pod
from seatrial.scheduler.fit_bounds import FitBounds, bound
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.request import GatherRequest
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import TopologyRig, gathered

SPINES = {f"s{spine}": {f"b{spine}{block}": tuple(f"n{spine}{block}{node}" for node in range(2)) for block in range(2)}
          for spine in range(2)}  # fmt: skip
SIZES = (1, 3, 5, 7)


def test_bounds_follow_the_nodes() -> None:
    """Random pods come and go, nodes come, go and are cordoned; after each change the bounds equal a new count."""
    random = Random(5)  # noqa: S311
    rig = TopologyRig()
    rig.fleet(SPINES)
    names = [name for blocks in SPINES.values() for nodes in blocks.values() for name in nodes]
    bounds = FitBounds(rig.core)
    kinds = {}
    for size in SIZES:
        rig.submit(pod(f"example-{size}").request(cpu=size))
        entry = rig.core.queue.find(f"uid-example-{size}")
        assert entry is not None
        kinds["default-scheduler", entry.info.shape.id] = entry.info
        rig.delete(f"example-{size}")
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"m{number}", "job", cpu=99) for number in range(2)))
    attempt = rig.cache._domains(rig.gang("default/job").group)
    assert isinstance(attempt, GatherRequest)
    columns = rig.core.cache.columns
    live: list[str] = []
    for step in range(150):
        what = random.random()
        if what < 0.5:
            name = f"p{step}"
            rig.running(pod(name).request(cpu=random.randint(1, 9)), random.choice(names))
            live.append(name)
        elif what < 0.8 and live:
            rig.delete(live.pop(random.randrange(len(live))))
        elif what < 0.9:
            rig.member_node(f"new{step}", "s1", f"b1{random.randrange(3)}")
        else:
            rig.member_node(random.choice(names), "s0", "b00", unschedulable=random.random() < 0.5)
        for kind, info in list(kinds.items())[: 1 + step // 30]:
            bounds.add(kind, info)
        bounds.update()
        domains = attempt.rows()
        assert domains is not None
        for kind, info in list(kinds.items())[: 1 + step // 30]:
            slots = np.zeros(columns.count, np.int64)
            for node in rig.core.cache:
                free = [have - used for have, used in zip(node.allocatable, node.requested, strict=True)]
                slots[node.row] = max(min(free[column] // amount for column, amount in info.shape.vector if amount), 0)
            assert bounds.may_fit(kind, None, int(slots.sum()))
            assert not bounds.may_fit(kind, None, int(slots.sum()) + 1)
            best = int(np.bincount(domains[domains >= 0], weights=slots[domains >= 0]).max())
            assert bounds.may_fit(kind, attempt, best)
            assert not bounds.may_fit(kind, attempt, best + 1)
            if random.random() < 0.2:
                class_scores = rig.core.runner_of(info).class_scores(info.shape)
                class_scores.refresh()
                bounds.count_feasible(kind, class_scores)
                feasible = np.flatnonzero(class_scores.key >= 0)
                exact = int(bound(columns.free, info.shape.vector, feasible).sum())
                assert bounds.may_fit(kind, None, exact)
                assert not bounds.may_fit(kind, None, exact + 1)
                bounds._position = -1  # count by requests alone again
