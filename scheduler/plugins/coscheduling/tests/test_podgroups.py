"""Readers of gang annotations (examples E13 to E16), and the phases of a PodGroup."""

import json

import msgspec
import pytest

from seatrial.scheduler.api.core import Pod, PodSpec, PodStatus
from seatrial.scheduler.api.podgroup import (
    GANG_GROUPS,
    GANG_MODE,
    GANG_TOTAL,
    GANG_WAITING_TIME,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    gang_groups,
    gang_mode,
    gang_total,
    gang_waiting_time,
)
from seatrial.scheduler.api.wire import ObjectMeta, OwnerReference
from seatrial.scheduler.plugins.coscheduling.gang import Gang, GangGroup
from seatrial.scheduler.plugins.coscheduling.phases import next_status, occupied_by

NOW = "2026-01-01T00:00:00Z"


def test_the_total_is_at_least_the_minimum() -> None:
    assert gang_total({GANG_TOTAL: "1"}, 2) == (2, "")
    assert gang_total({GANG_TOTAL: "5"}, 2) == (5, "")
    total, note = gang_total({GANG_TOTAL: "x"}, 2)
    assert total == 2
    assert note.endswith("total-number: expected a whole number, at most 2147483647, found 'x'; 2 is used")


@pytest.mark.parametrize("text", ["0", "-20s", "soon"])
def test_a_waiting_time_that_is_no_duration_above_0_is_the_default(text: str) -> None:
    seconds, note = gang_waiting_time({GANG_WAITING_TIME: text}, 600.0)
    assert (seconds, text in note) == (600.0, True)


def test_other_modes_are_strict_and_other_lists_are_the_gang_alone() -> None:
    assert gang_mode({GANG_MODE: "x"}) == (
        "Strict",
        "annotation gang.scheduling.koordinator.sh/mode: expected Strict or NonStrict, found 'x'; Strict is used",
    )
    for text in ("[a,b]", '["a"]', "{}", "[]", "[1]"):
        ids, note = gang_groups({GANG_GROUPS: text}, "d/own")
        assert ids == ("d/own",)
        assert "expected" in note
    assert gang_groups({GANG_GROUPS: '["d/own", "d/a"]'}, "d/own") == (("d/a", "d/own"), "")
    assert gang_groups({GANG_GROUPS: '["d/a"]'}, "d/own")[0] == ("d/a", "d/own")


def gang(children: int, *, bound: int = 0, running: int = 0) -> Gang:
    made = Gang("default", "g", GangGroup(("default/g",)))
    for number in range(children):
        metadata = ObjectMeta(
            name=f"p{number}",
            namespace="default",
            uid=f"u{number}",
            owner_references=(OwnerReference(name=f"new-occupied-{2 - number % 2}"),),
        )
        status = PodStatus(phase="Running" if number < running else "Pending")
        made.children[f"u{number}"] = Pod(metadata, PodSpec(), status)
        if number < bound:
            made.bound[f"u{number}"] = None
    return made


@pytest.mark.parametrize(
    ("phase", "made", "ended", "want"),
    [
        pytest.param("", gang(0), [], "Pending", id="new"),
        pytest.param("Pending", gang(1), [], None, id="too-few"),
        pytest.param("Pending", gang(2), [], "PreScheduling", id="enough-pods"),
        pytest.param("PreScheduling", gang(2), [], "Scheduling", id="none-bound"),
        pytest.param("Scheduling", gang(2, bound=2), [], "Scheduled", id="bound"),
        pytest.param("Scheduled", gang(2, bound=2, running=2), [], "Running", id="running"),
        pytest.param("Running", gang(1, bound=1, running=1), ["Succeeded"], None, id="one-succeeded"),
        pytest.param("Running", gang(0), ["Succeeded", "Succeeded"], "Finished", id="all-succeeded"),
        pytest.param("Running", gang(1, bound=1, running=1), ["Failed"], "Failed", id="one-failed"),
        pytest.param("Scheduling", gang(0), [], "Pending", id="no-members"),
        pytest.param("Finished", gang(2), [], None, id="finished-stays"),
    ],
)
def test_phases(phase: str, made: Gang, ended: list[str], want: str | None) -> None:
    pod_group = PodGroup(ObjectMeta(name="g"), PodGroupSpec(2), PodGroupStatus(phase=phase))
    status = next_status(pod_group, made, {f"e{number}": phase for number, phase in enumerate(ended)}, NOW) or {}
    assert status.get("phase") == want
    if want == "Scheduling":
        assert status["scheduleStartTime"] == NOW


def test_owners_are_listed_in_order() -> None:
    """GANG-E21."""
    assert occupied_by(gang(2)) == "default/new-occupied-1,default/new-occupied-2"


def test_a_status_that_is_up_to_date_is_not_written() -> None:
    status = PodGroupStatus("Scheduled", "", 2, 0, 0, 0, NOW)
    pod_group = msgspec.structs.replace(PodGroup(ObjectMeta(name="g"), PodGroupSpec(2)), status=status)
    assert next_status(pod_group, gang(2, bound=2), {}, NOW) is None


def test_a_group_has_at_most_a_thousand_gangs() -> None:
    """With one more the gang is alone in its group, and the note has the number only."""
    ids = [f"default/g{number}" for number in range(1000)]
    assert len(gang_groups({GANG_GROUPS: json.dumps(ids)}, ids[0])[0]) == 1000
    names, note = gang_groups({GANG_GROUPS: json.dumps([*ids, "default/x"])}, ids[0])
    assert names == (ids[0],)
    assert note.endswith("expected at most 1000 gangs, found 1001; default/g0 is alone in its group")


@pytest.mark.parametrize("text", ["[" * 200_000, '["a/b",' * 30_000], ids=["nested", "unfinished"])
def test_a_list_of_groups_that_cannot_be_read_is_quoted_in_short(text: str) -> None:
    names, note = gang_groups({GANG_GROUPS: text}, "default/g")
    assert names == ("default/g",)
    assert "expected a JSON list of namespace/name" in note
    assert len(note) < 400
