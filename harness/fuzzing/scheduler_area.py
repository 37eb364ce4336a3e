"""The scheduler on objects with odd values: no exception, no super-linear cost, and other pods are bound meanwhile."""

from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

from seatrial.harness.fuzzing.long_texts import (
    LongText,
    Path,
    check_cost,
    long_texts,
    processor_time,
    text_of,
    text_paths,
    with_text,
)
from seatrial.harness.fuzzing.running import Area, FaultError
from seatrial.harness.fuzzing.scheduler_objects import OBJECTS, vocabulary
from seatrial.harness.fuzzing.scheduler_world import PODS, PROBE_SECONDS, World, name_of
from seatrial.harness.fuzzing.values import mutated


def places() -> Iterator[tuple[int, Path]]:
    """Each object's texts, and the labels and annotations of the vocabulary on each object."""
    keys = vocabulary()
    for number, (_, obj) in enumerate(OBJECTS):
        yield from ((number, path) for path in text_paths(obj))
        for part in ("labels", "annotations"):
            yield from ((number, ("metadata", part, key)) for key in keys if key not in obj["metadata"].get(part, {}))


PLACES: Final = tuple(places())
INPUTS: Final = 50  # that a world takes in before a fresh one is built


_ENOUGH: Final = 0.2  # seconds of processor time; any text takes 0.03 to 0.06
_kept: list[World] = []  # of the last input


def _in_world(number: int, changed: Any) -> float:
    """The processor time that a scheduler takes for an object and the pods beside it.

    A world takes in many inputs. An input at which it fails is given to a fresh one.
    """
    world = _kept.pop() if _kept else World()
    try:
        value = processor_time(lambda: _take(world, number, changed))
    except Exception:
        _take(World(), number, changed)
        raise
    world.restore()
    if world.restored < INPUTS:
        _kept.append(world)
    return value


def _take(world: World, number: int, changed: Any) -> None:
    """Change an object, and expect that new pods are bound nevertheless.

    Raises:
        FaultError: they are not, or a plugin raised an exception.
        Exception: a fault of the scheduler.
    """
    where, usual = OBJECTS[number]
    for event in ("", "DELETED"):
        world.server.put(where, changed, event)
        world.renew_pods(name_of(usual) if where == PODS else "")
        probe = f"probe-{world.restored}"
        world.create(probe)
        world.clock.advance(PROBE_SECONDS)
        if not world.is_bound(probe):
            raise FaultError(f"no pod is bound within {PROBE_SECONDS:.0f} s; object: {event or 'there'}")
        world.delete(probe)
    raised = world.shell.core.handle.plugin_errors.counts
    if raised:
        raise FaultError(f"plugins raised exceptions: {dict(raised)}")


def _run_text(values: tuple[tuple[int, Path], LongText]) -> None:
    (number, path), run = values
    check_cost(run, lambda run: _in_world(number, with_text(OBJECTS[number][1], path, text_of(run))), _ENOUGH)


def _run_object(values: tuple[int, Any]) -> None:
    _in_world(*values)


@st.composite
def _objects(draw: st.DrawFn) -> tuple[int, Any]:
    number = draw(st.integers(0, len(OBJECTS) - 1))
    return number, draw(mutated([OBJECTS[number][1]]))


SCHEDULER_AREAS: Final = (
    Area(
        "scheduler-texts",
        "long texts in objects that the scheduler reads",
        st.tuples(st.sampled_from(PLACES), long_texts),
        _run_text,
    ),
    Area("scheduler-objects", "objects that the scheduler reads, with random changes", _objects(), _run_object),
)
