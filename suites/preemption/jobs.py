"""Jobs and gangs for cases of job-level preemption: nodes of A10 cards, full pods of lower priority, members."""

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, node, pod

PREEMPTING = "preempting-jobs"
JOB = "scheduling.koordinator.sh/questioned-object-key"


def filler(name: str, where: str, cards: int = 1, priority: str = "trial-low", *, grace: int = 0) -> PodBuilder:
    """A pod of lower priority on a given node."""
    built = pod(name).gpus(cards).priority_class(priority).scheduler(PREEMPTING).on(host=where)
    built.manifest["spec"]["terminationGracePeriodSeconds"] = grace
    return built


def of_job(job: str, where: str, priority: str = "trial-low", *, cards: int = 1) -> PodBuilder:
    """A pod of a job on a given node, named after both."""
    return filler(f"{job}-{where}", where, cards, priority).label(JOB, job)


def workers(group: str, count: int, *, cards: int = 1, priority: str = "trial-top") -> list[PodBuilder]:
    """Members of a PodGroup, `GROUP-0`, `GROUP-1` and so on."""
    return [
        pod(f"{group}-{number}").gpus(cards).in_gang(group).priority_class(priority).scheduler(PREEMPTING)
        for number in range(count)
    ]


def workers_on(group: str, *where: str) -> list[PodBuilder]:
    """Members of a PodGroup of one card each, each on a given node."""
    return [built.on(host=host) for built, host in zip(workers(group, len(where)), where, strict=True)]


def names(group: str, count: int) -> list[str]:
    return [f"{group}-{number}" for number in range(count)]


def hosts(trial: Trial, **cards: int) -> None:
    trial.add(*(node(name).gpus("a10", count).label("host", name) for name, count in cards.items()))


def left(trial: Trial) -> list[str]:
    """Names of pods that are not being deleted, without the members of gangs named train and other."""
    return sorted(
        pod.metadata.name
        for pod in trial.pods()
        if not pod.deleting and not pod.metadata.name.startswith(("train-", "other-"))
    )


def nominated(trial: Trial, *members: str) -> list[str]:
    return [trial.pod(name).status.nominated_node_name for name in members]
