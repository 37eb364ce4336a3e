"""Equivalence classes are known as long as someone refers to them, and no longer."""

from seatrial.scheduler.api.core import Container, Pod, PodSpec, ResourceRequirements
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.resources import ResourceIndex


def pod(name: str, cpu: str) -> Pod:
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))
    return Pod(ObjectMeta(name=name, uid=name), PodSpec(containers=(container,)))


def test_a_class_and_its_specs_are_forgotten_with_the_last_pod() -> None:
    """Also where plugins asked for the class of its example, which has a spec of its own."""
    classes = ClassRegistry(ResourceIndex())
    first, second = pod("a", "1"), pod("b", "1000m")
    pod_class = classes.of(first)
    assert classes.of(second) is pod_class is classes.of(pod_class.example)
    assert (len(classes), classes.specs) == (1, 3)
    del first
    assert (len(classes), classes.specs) == (1, 2)
    before = pod_class.id
    del second, pod_class
    assert (len(classes), classes.specs) == (0, 0)
    again = classes.of(pod("c", "1"))
    assert again.id != before


def test_pods_that_all_differ_leave_nothing() -> None:
    classes = ClassRegistry(ResourceIndex())
    for number in range(1000):
        classes.of(pod("a", f"{number}m"))
    assert (len(classes), classes.specs) == (0, 0)
