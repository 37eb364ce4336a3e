"""The store, and a stateful test that compares a server with a simple model."""

import copy
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seatrial.harness.apiserver.storage import store as store_module
from seatrial.harness.apiserver.storage.store import KEPT_SECONDS, Change, Store
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Object, Watch, config, pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

CONFIG_MAPS = ("", "configmaps")


def thing(name: str, **fields: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "a"}, **fields}


def test_one_counter_numbers_all_changes() -> None:
    store = Store(SimClock())
    first, second = store.collection(("", "x")), store.collection(("", "y"))
    versions = [first.put(("a", "1"), thing("1")).version, second.put(("a", "1"), thing("1")).version]
    gone = first.remove(("a", "1"))
    assert gone is not None
    assert [*versions, gone.version, store.version] == [1, 2, 3, 3]


def test_listeners_get_each_change_once_in_order() -> None:
    store = Store(SimClock())
    collection = store.collection(("", "x"))
    heard: list[tuple[bool, bool, int]] = []

    def listen(change: Change) -> None:
        heard.append((change.old is not None, change.new is not None, change.version))

    collection.listen(listen)
    collection.put(("a", "1"), thing("1"))
    collection.put(("a", "1"), thing("1", x=1))
    collection.remove(("a", "1"))
    collection.remove(("a", "1"))
    collection.unlisten(listen)
    collection.put(("a", "1"), thing("1"))
    assert heard == [(False, True, 1), (True, True, 2), (True, False, 3)]


@pytest.mark.parametrize(("since", "seen"), [(0, 5), (3, 5), (7, 1), (8, 0), (20, 0)])
def test_history_is_bounded(since: int, seen: int) -> None:
    collection = Store(SimClock(), history=5).collection(("", "x"))
    for number in range(8):
        collection.put(("a", str(number)), thing(str(number)))
    assert collection.forgotten == 3
    assert len(list(collection.since(max(since, collection.forgotten)))) == seen


def test_old_changes_are_forgotten_beyond_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEPT", 3)
    clock = SimClock()
    collection = Store(clock).collection(("", "x"))
    for number in range(10):
        collection.put(("a", str(number)), thing(str(number)))
    assert len(collection.history) == 10
    clock.advance(KEPT_SECONDS + 1)
    collection.put(("a", "last"), thing("last"))
    assert (len(collection.history), collection.forgotten) == (3, 8)


def test_the_bytes_of_a_history_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY_BYTES", 10_000)
    collection = Store(SimClock()).collection(("", "x"))
    for number in range(100):
        collection.put(("a", "1"), thing("1", data="x" * 1000, number=number))
        assert sum(change.size for change in collection.history) <= 10_000
    assert collection.forgotten == 100 - len(collection.history)
    collection.forget_history()
    collection.put(("a", "1"), thing("1", data="x" * 9000))
    assert len(collection.history) == 1


def test_items_are_sorted_by_key() -> None:
    collection = Store(SimClock()).collection(("", "x"))
    for key in (("b", "1"), ("a", "2"), ("a", "10"), ("c", "0")):
        collection.put(key, {"metadata": {"name": key[1], "namespace": key[0]}})
    assert [item.key for item in collection.items()] == [("a", "10"), ("a", "2"), ("b", "1"), ("c", "0")]
    assert [item.key for item in collection.items("a")] == [("a", "10"), ("a", "2")]
    assert len(collection) == 4


NAMES = st.sampled_from(["a", "b", "c", "d"])
LABELS = st.dictionaries(st.sampled_from(["in", "x"]), st.sampled_from(["1", "2"]), max_size=2)
DATA = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["v", "w", ""]), max_size=2)


class Against(RuleBasedStateMachine):
    """Config maps, because nothing but the verbs touches them; watches that begin at any time see all that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.api = Api(history=16, bare=True)
        self.model: dict[str, Object] = {}  # name → labels, data, finalizers, going
        self.last = self.api.version
        self.watches: list[tuple[Watch, dict[str, str], str]] = []  # what each has seen so far, name → revision
        self.past: dict[int, list[Object]] = {}  # revision → the list as it was then

    def _moved(self, changed: bool) -> None:
        assert (self.api.version > self.last) is changed
        self.last = self.api.version

    @rule(name=NAMES, labels=LABELS, data=DATA, held=st.booleans())
    def create(self, name: str, labels: dict[str, str], data: dict[str, str], held: bool) -> None:
        body = config(name, labels=labels, **data)
        if held:
            body["metadata"]["finalizers"] = ["x.io/held"]
        code, _ = self.api.ask("POST", CONFIGS, body)
        assert code == (409 if name in self.model else 201)
        self._moved(code == 201)
        if code == 201:
            self.model[name] = {"labels": labels, "data": data, "held": held, "going": False}

    @rule(name=NAMES, labels=LABELS, data=DATA, stale=st.booleans())
    def replace(self, name: str, labels: dict[str, str], data: dict[str, str], stale: bool) -> None:
        body = config(name, labels=labels, **data)
        known = self.model.get(name)
        if known is not None:
            current = self.api.do("GET", f"{CONFIGS}/{name}")["metadata"]
            body["metadata"]["resourceVersion"] = "1" if stale else current["resourceVersion"]
            body["metadata"]["finalizers"] = current.get("finalizers")
        code, _ = self.api.ask("PUT", f"{CONFIGS}/{name}", body)
        assert code == (404 if known is None else 409 if stale else 200)
        same = known is not None and (known["labels"], known["data"]) == (labels, data)
        self._moved(code == 200 and not same)
        if code == 200:
            self.model[name].update(labels=labels, data=data)

    @rule(
        name=NAMES,
        label=st.none() | st.sampled_from(["1", "2"]),
        kind=st.sampled_from([MERGE_PATCH, STRATEGIC_MERGE_PATCH]),
    )
    def relabel(self, name: str, label: str | None, kind: str) -> None:
        code, _ = self.api.ask("PATCH", f"{CONFIGS}/{name}", {"metadata": {"labels": {"in": label}}}, kind)
        known = self.model.get(name)
        assert code == (404 if known is None else 200)
        if known is None:
            self._moved(False)
            return
        labels = {key: value for key, value in known["labels"].items() if key != "in"}
        if label is not None:
            labels["in"] = label
        self._moved(labels != known["labels"])
        known["labels"] = labels

    @rule(name=NAMES, value=st.sampled_from(["v", "w"]), expected=st.sampled_from(["v", "w"]))
    def patch_if(self, name: str, value: str, expected: str) -> None:
        patch = [
            {"op": "test", "path": "/data/k", "value": expected},
            {"op": "replace", "path": "/data/k", "value": value},
        ]
        code, _ = self.api.ask("PATCH", f"{CONFIGS}/{name}", patch, JSON_PATCH)
        known = self.model.get(name)
        fits = known is not None and known["data"].get("k") == expected
        assert code == (404 if known is None else 200 if fits else 422)
        self._moved(fits and value != expected)
        if fits and known is not None:
            known["data"] = {**known["data"], "k": value}

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        code, _ = self.api.ask("DELETE", f"{CONFIGS}/{name}")
        known = self.model.get(name)
        assert code == (404 if known is None else 200)
        self._moved(known is not None and not known["going"])
        if known is not None and known["held"]:
            known["going"] = True
        else:
            self.model.pop(name, None)

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        code, _ = self.api.ask("PATCH", f"{CONFIGS}/{name}", {"metadata": {"finalizers": None}}, MERGE_PATCH)
        known = self.model.get(name)
        assert code == (404 if known is None else 200)
        self._moved(known is not None and known["held"])
        if known is not None:
            known["held"] = False
            if known["going"]:
                del self.model[name]

    @rule(selector=st.sampled_from(["", "in=1", "in", "x!=2"]), how=st.sampled_from(["state", "since"]))
    def watch(self, selector: str, how: str) -> None:
        query = {"labelSelector": selector} if selector else {}
        seen: dict[str, str] = {}
        if how == "since":
            text = f"?labelSelector={quote(selector)}" if selector else ""
            listed = self.api.do("GET", f"{CONFIGS}{text}")
            seen = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
            query["resourceVersion"] = listed["metadata"]["resourceVersion"]
        self.watches.append((self.api.watch(CONFIGS, **query), seen, selector))

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def stop_watching(self, data: Any) -> None:
        watch, _, _ = self.watches.pop(data.draw(st.integers(0, len(self.watches) - 1)))
        watch.source.close()

    @invariant()
    def the_list_is_the_model(self) -> None:
        listed = self.api.do("GET", CONFIGS)
        assert {
            item["metadata"]["name"]: (item["metadata"].get("labels", {}), item.get("data", {}))
            for item in listed["items"]
        } == {name: (known["labels"], known["data"]) for name, known in self.model.items()}
        assert int(listed["metadata"]["resourceVersion"]) == self.api.version
        self.past[self.api.version] = listed["items"]

    @precondition(lambda self: self.past)
    @rule(data=st.data(), selector=st.sampled_from(["", "in=1"]))
    def look_back(self, data: Any, selector: str) -> None:
        version = data.draw(st.sampled_from(sorted(self.past)))
        query = f"resourceVersion={version}&resourceVersionMatch=Exact&labelSelector={quote(selector)}"
        code, listed = self.api.ask("GET", f"{CONFIGS}?{query}")
        if version < self.api.server.store.collection(CONFIG_MAPS).forgotten:
            assert (code, listed["reason"]) == (410, "Expired")
            return
        then = self.past[version]
        if selector:
            then = [stored for stored in then if stored["metadata"].get("labels", {}).get("in") == "1"]
        assert listed["items"] == then
        assert listed["metadata"]["resourceVersion"] == str(version)

    @invariant()
    def list_and_watch_are_the_state(self) -> None:
        for watch, before, selector in self.watches:
            text = f"?labelSelector={quote(selector)}" if selector else ""
            listed = self.api.do("GET", f"{CONFIGS}{text}")["items"]
            seen = dict(before)
            newest = 0
            for event in watch.events():
                metadata = event["object"]["metadata"]
                name, version = metadata["name"], int(metadata["resourceVersion"])
                if event["type"] == "DELETED":
                    assert name in seen
                    del seen[name]
                else:
                    assert (name in seen) is (event["type"] == "MODIFIED")
                    seen[name] = metadata["resourceVersion"]
                if event["type"] != "ADDED":  # what was there at the beginning comes in the order of names
                    assert version > newest
                newest = max(newest, version)
            assert seen == {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}

    @invariant()
    def what_is_stored_is_never_written_to(self) -> None:
        for item in self.api.server.store.collection(CONFIG_MAPS).each():
            assert orjson.loads(item.raw) == item.obj

    def teardown(self) -> None:
        for watch, _, _ in self.watches:
            watch.source.close()
        assert self.api.server.reads.watches == 0


TestAgainstAModel = Against.TestCase
TestAgainstAModel.settings = settings(max_examples=25, stateful_step_count=30)


def test_stored_objects_are_immutable() -> None:
    """Patches share what they do not change; defaulting and stamping must not write through to the old revision."""
    api = Api()
    collection = api.server.store.collection(("", "pods"))
    seen: list[tuple[Object, Object]] = []

    def remember(change: Change) -> None:
        if change.new is not None:
            seen.append((change.new.obj, copy.deepcopy(change.new.obj)))

    collection.listen(remember)
    api.do("POST", PODS, pod("p", labels={"a": "b"}, tolerations=[{"key": "k", "operator": "Exists"}]))
    api.do("PATCH", f"{PODS}/p", {"metadata": {"labels": {"c": "d"}}}, STRATEGIC_MERGE_PATCH)
    api.do(
        "PATCH", f"{PODS}/p", [{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}], JSON_PATCH
    )
    api.do(
        "PATCH",
        f"{PODS}/p",
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "z", "operator": "Exists"}}],
        JSON_PATCH,
    )
    api.do(
        "PATCH", f"{PODS}/p", {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}, STRATEGIC_MERGE_PATCH
    )
    api.do("POST", f"{PODS}/p/binding", {"target": {"name": "n"}, "metadata": {"name": "p", "annotations": {"x": "y"}}})
    api.do(
        "PATCH",
        f"{PODS}/p/status",
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        MERGE_PATCH,
    )
    api.do("DELETE", f"{PODS}/p")
    assert len(seen) == 8
    for now, then in seen:
        assert now == then
