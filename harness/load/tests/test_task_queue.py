"""The order of a load process' tasks, and how processes share one plan."""

import orjson
import pytest

from seatrial.harness.load.settings import PART_LABEL, LoadSettings, WorkerSettings
from seatrial.harness.load.task_queue import PodBodies, Task, TaskQueue, creations


def test_tasks_come_when_they_are_due_and_in_that_order() -> None:
    tasks = TaskQueue([Task("create", "b", 2.0), Task("create", "a", 1.0)])
    tasks.add(Task("delete", "c", 1.5))
    assert tasks.take(0.5) is None
    assert tasks.wait(0.5) == 0.5
    assert [tasks.take(9.0), tasks.take(9.0), tasks.take(9.0)] == [
        Task("create", "a", 1.0),
        Task("delete", "c", 1.5),
        Task("create", "b", 2.0),
    ]
    assert tasks.take(9.0) is None
    assert tasks.wait(9.0) == float("inf")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_together_submit_the_plan_once(processes: int) -> None:
    settings = LoadSettings(rate=30, seconds=2, processes=processes)
    workers = [WorkerSettings(settings, "", "", "", part) for part in range(processes)]
    tasks = sorted((task for worker in workers for task in creations(worker)), key=lambda task: task.due)
    whole = list(creations(WorkerSettings(LoadSettings(rate=30, seconds=2), "", "", "", 0)))
    assert tasks == whole
    assert len({task.pod for task in tasks}) == len(tasks)
    assert sum(worker.users for worker in workers) == settings.users


def test_a_body_is_the_shape_with_name_label_and_scheduler() -> None:
    bodies = PodBodies(LoadSettings(mix="cpu", scheduler="mine"), part=3)
    pod = orjson.loads(bodies.body("cpu-2", "load-17"))
    assert pod["metadata"] == {"name": "load-17", "labels": {PART_LABEL: "3"}}
    assert pod["spec"]["schedulerName"] == "mine"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
