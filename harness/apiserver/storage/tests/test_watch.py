"""Watches: start, events and end (API-A12)."""

from collections.abc import Iterator

import orjson
import pytest

from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import Change
from seatrial.harness.apiserver.storage.watch import View
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Lines, config, pod
from seatrial.scheduler.api.transport import MERGE_PATCH, Request


@pytest.fixture
def api() -> Api:
    return Api(bare=True)


def relabel(api: Api, name: str, **labels: str | None) -> None:
    api.do("PATCH", f"{CONFIGS}/{name}", {"metadata": {"labels": labels}}, MERGE_PATCH)


def change(api: Api, name: str, value: str) -> None:
    api.do("PATCH", f"{CONFIGS}/{name}", {"data": {"a": value}}, MERGE_PATCH)


def test_a_watch_from_a_revision_gets_later_changes(api: Api) -> None:
    then = api.do("POST", CONFIGS, config("a"))["metadata"]["resourceVersion"]
    api.do("POST", CONFIGS, config("b"))
    change(api, "a", "1")
    api.do("DELETE", f"{CONFIGS}/b")
    watch = api.watch(CONFIGS, resourceVersion=then)
    assert watch.short() == ["ADDED b", "MODIFIED a", "DELETED b"]
    change(api, "a", "2")
    assert watch.short()[3:] == ["MODIFIED a"]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["unset", "zero"])
def test_a_watch_without_a_revision_starts_with_the_current_objects(api: Api, query: dict[str, str]) -> None:
    api.do("POST", CONFIGS, config("b"))
    api.do("POST", CONFIGS, config("a"))
    change(api, "b", "1")
    watch = api.watch(CONFIGS, **query)
    assert watch.short() == ["ADDED a", "ADDED b"]
    assert watch.events()[1]["object"]["data"] == {"a": "1"}
    change(api, "a", "1")
    assert watch.short()[2:] == ["MODIFIED a"]


def test_a_deleted_event_has_the_last_state_and_the_revision_of_the_removal(api: Api) -> None:
    api.do("POST", CONFIGS, config("a", x="y"))
    watch = api.watch(CONFIGS, resourceVersion=str(api.version))
    api.do("DELETE", f"{CONFIGS}/a")
    (event,) = watch.events()
    assert event["object"]["data"] == {"x": "y"}
    assert event["object"]["metadata"]["resourceVersion"] == str(api.version)


def test_objects_that_enter_and_leave_a_selection_are_added_and_deleted(api: Api) -> None:
    watch = api.watch(CONFIGS, labelSelector="in=yes")
    api.do("POST", CONFIGS, config("a"))
    relabel(api, "a", **{"in": "yes"})
    change(api, "a", "1")
    relabel(api, "a", **{"in": None})
    left = api.version
    change(api, "a", "2")
    api.do("DELETE", f"{CONFIGS}/a")
    assert watch.short() == ["ADDED a", "MODIFIED a", "DELETED a"]
    last = watch.events()[-1]["object"]
    assert last["metadata"]["labels"] == {"in": "yes"}  # its last selected state ...
    assert last["metadata"]["resourceVersion"] == str(left)  # ... at the revision of its leaving


def test_a_field_selector_shows_pods_bound_to_a_node(api: Api) -> None:
    node = api.watch("/api/v1/pods", fieldSelector="spec.nodeName=n")
    unbound = api.watch("/api/v1/pods", fieldSelector="spec.nodeName=")
    api.do("POST", PODS, pod("p"))
    api.do("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert node.short() == ["ADDED p"]
    assert unbound.short() == ["ADDED p", "DELETED p"]


def test_a_watch_of_one_object_or_namespace_sees_no_others(api: Api) -> None:
    api.do("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    since = str(api.version)
    one = api.watch(CONFIGS, resourceVersion=since, fieldSelector="metadata.name=a")
    default = api.watch(CONFIGS, resourceVersion=since)
    everywhere = api.watch("/api/v1/configmaps", resourceVersion=since)
    for name in ("a", "b"):
        api.do("POST", CONFIGS, config(name))
    api.do("POST", "/api/v1/namespaces/other/configmaps", config("c"))
    assert one.short() == ["ADDED a"]
    assert default.short() == ["ADDED a", "ADDED b"]
    assert everywhere.short() == ["ADDED a", "ADDED b", "ADDED c"]


def test_the_initial_state_ends_with_a_bookmark(api: Api) -> None:
    api.do("POST", CONFIGS, config("a"))
    watch = api.watch(
        CONFIGS, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    assert watch.short() == ["ADDED a", "BOOKMARK"]
    mark = watch.events()[1]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (mark["kind"], mark["apiVersion"]) == ("ConfigMap", "v1")
    assert mark["metadata"]["resourceVersion"] == str(api.version)
    change(api, "a", "1")
    assert watch.short()[2:] == ["MODIFIED a"]


def test_initial_events_can_be_declined(api: Api) -> None:
    api.do("POST", CONFIGS, config("a"))
    watch = api.watch(CONFIGS, sendInitialEvents="false", resourceVersionMatch="NotOlderThan")
    change(api, "a", "1")
    assert watch.short() == ["MODIFIED a"]


def test_bookmarks_come_to_those_who_allow_them(api: Api) -> None:
    with_marks = api.watch(CONFIGS, allowWatchBookmarks="true")
    without = api.watch(CONFIGS)
    api.do("POST", PODS, pod("p"))  # another collection: only a bookmark can tell of this revision
    api.clock.advance(61)
    assert with_marks.short() == ["BOOKMARK"]
    assert without.short() == []
    assert int(with_marks.events()[0]["object"]["metadata"]["resourceVersion"]) == api.version


def test_no_event_is_older_than_the_bookmark_before_it(api: Api) -> None:
    watch = api.watch(CONFIGS, allowWatchBookmarks="true")
    for number in range(5):
        api.do("POST", CONFIGS, config(f"c{number}"))
        api.clock.advance(61)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watch.events()]
    assert versions == sorted(versions)
    assert watch.short().count("BOOKMARK") == 5


def test_a_watch_ends_after_its_time(api: Api) -> None:
    watch = api.watch(CONFIGS, timeoutSeconds="5")
    api.clock.advance(4)
    before = watch.reader.ended
    api.clock.advance(1)
    assert (before, watch.reader.ended) == (False, True)
    api.do("POST", CONFIGS, config("late"))
    assert watch.short() == []
    assert api.server.reads.watches == 0


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        pytest.param({"resourceVersion": "1"}, 410, "too old resource version: 1", id="too-old"),
        pytest.param({"resourceVersion": "99999"}, 504, "Too large resource version", id="the-future"),
        pytest.param({"resourceVersion": "x"}, 400, "invalid syntax", id="no-revision"),
        pytest.param({"sendInitialEvents": "true"}, 422, "NotOlderThan", id="initial-events-without-match"),
        pytest.param({"resourceVersionMatch": "Exact"}, 422, "forbidden for watch", id="exact"),
        pytest.param({"timeoutSeconds": "soon"}, 400, "parsing", id="no-time"),
        pytest.param({"labelSelector": "a=b=c"}, 400, "unable to parse", id="no-selector"),
    ],
)
def test_invalid_watches_are_refused(query: dict[str, str], code: int, words: str) -> None:
    api = Api(history=4, bare=True)
    for number in range(6):
        api.do("POST", CONFIGS, config(f"c{number}"))
    with pytest.raises(ApiStatusError, match=words) as refused:
        api.watch(CONFIGS, **query)
    assert refused.value.code == code
    assert api.server.reads.watches == 0


def test_the_oldest_revision_still_known_is_served(api: Api) -> None:
    short = Api(history=4, bare=True)
    for number in range(6):
        short.do("POST", CONFIGS, config(f"c{number}"))
    assert short.watch(CONFIGS, resourceVersion=str(short.version - 4)).short() == [
        "ADDED c2",
        "ADDED c3",
        "ADDED c4",
        "ADDED c5",
    ]
    with pytest.raises(ApiStatusError):
        short.watch(CONFIGS, resourceVersion=str(short.version - 5))


def test_a_reader_that_falls_behind_gets_no_more_lines(api: Api) -> None:
    slow, quick = api.watch(CONFIGS), api.watch(CONFIGS)
    api.do("POST", CONFIGS, config("a"))
    assert slow.short() == ["ADDED a"]
    slow.reader.refuses = True
    api.do("POST", CONFIGS, config("b"))
    assert slow.reader.ended
    slow.reader.refuses = False
    api.do("POST", CONFIGS, config("c"))
    assert slow.short() == ["ADDED a"]
    assert quick.short() == ["ADDED a", "ADDED b", "ADDED c"]


def test_closing_the_last_reader_removes_the_channel(api: Api) -> None:
    listeners = len(api.server.store.collection(("", "configmaps"))._listeners)
    watches = [api.watch(CONFIGS, labelSelector=f"n={number % 3}") for number in range(9)]
    assert api.server.reads.watches == 3
    for watch in watches:
        watch.source.close()
        watch.source.close()
    assert api.server.reads.watches == 0
    assert len(api.server.store.collection(("", "configmaps"))._listeners) == listeners


def joined(api: Api) -> Iterator[str]:
    """Watchers that come at every moment between two changes."""
    watches = []
    for number in range(20):
        watches.append((number, api.watch(CONFIGS, resourceVersion=str(api.version))))
        body = orjson.dumps(config(f"c{number:02}"))
        api.server.handle(Request("POST", CONFIGS, body))  # and the clock does not move
    for start, watch in watches:
        yield "" if watch.short() == [f"ADDED c{number:02}" for number in range(start, 20)] else f"from {start}"


def test_a_reader_that_joins_between_turns_gets_each_change_once(api: Api) -> None:
    """Changes gather until the clock's next turn; one who joins meanwhile must see none of the earlier ones."""
    assert set(joined(api)) == {""}


def test_watches_of_tables_and_partial_metadata(api: Api) -> None:
    headers = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    response = api.server.handle(Request("GET", f"{CONFIGS}?watch=1", headers=headers))
    assert isinstance(response, Streaming)
    reader = Lines()
    response.start(reader)
    api.do("POST", CONFIGS, config("a", x="y"))
    (event,) = reader.events()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]


def test_a_watch_that_cannot_show_a_change_ends_and_others_go_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two views raises for a change. The client of its watch lists again, and misses nothing."""
    api.clock.faults.raises = False
    broken, other = api.watch(CONFIGS), api.watch(CONFIGS, labelSelector="a=1")
    right, raised = View.line, list[View]()

    def line(view: View, change: Change) -> bytes | None:
        if change.key[1] == "poison" and not raised:
            raised.append(view)
            raise TypeError("a fault")
        return right(view, change)

    monkeypatch.setattr(View, "line", line)
    api.do("POST", CONFIGS, config("poison", labels={"a": "1"}))
    api.do("POST", CONFIGS, config("good", labels={"a": "1"}))
    assert other.short() == ["ADDED poison", "ADDED good"]
    assert broken.short() == []
    assert broken.reader.ended
    assert not other.reader.ended


def test_a_reader_that_raises_is_closed_and_others_get_the_lines(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.clock.faults.raises = False
    broken, other = api.watch(CONFIGS), api.watch(CONFIGS)

    def feed(_: bytes) -> bool:
        raise TypeError("a fault")

    monkeypatch.setattr(broken.reader, "feed", feed)
    for name in ("a", "b"):
        api.do("POST", CONFIGS, config(name))
        api.clock.settle()
    assert other.short() == ["ADDED a", "ADDED b"]
    assert api.clock.faults.counts == {"Subscription.feed": 1}
