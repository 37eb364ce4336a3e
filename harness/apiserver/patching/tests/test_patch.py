"""The three kinds of patch: examples of the RFCs and of upstream, and properties."""

import copy
from typing import Any

import jsonpatch  # type: ignore[import-untyped,unused-ignore]
import jsonpointer  # type: ignore[import-untyped,unused-ignore]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.harness.apiserver.patching.patch import PatchError, json_patch, merge_patch, same_json, strategic_merge
from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode, schema_for

# Examples do not depend on chance or on the speed of the machine.

Json = Any


def kind(group: str, version: str, name: str) -> SchemaNode:
    schema = schema_for(group, version, name)
    assert schema is not None
    return schema


POD = kind("", "v1", "Pod")
DEPLOYMENT = kind("apps", "v1", "Deployment")


@pytest.mark.parametrize(
    ("doc", "ops", "want"),
    [
        pytest.param(
            {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}, id="add"
        ),
        pytest.param(
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
            id="add-into-a-list",
        ),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": [2]}], {"a": [1, [2]]}, id="append"),
        pytest.param({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}, id="remove"),
        pytest.param({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}, id="remove-from-a-list"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}, id="replace-by-null"),
        pytest.param(
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
            id="move",
        ),
        pytest.param(
            {"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}, id="move-in-a-list"
        ),
        pytest.param(
            {"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}, id="copy"
        ),
        pytest.param(
            {"metadata": {"annotations": {"x.io/y": "1", "t~": "2"}}},
            [
                {"op": "test", "path": "/metadata/annotations/x.io~1y", "value": "1"},
                {"op": "remove", "path": "/metadata/annotations/t~0"},
            ],
            {"metadata": {"annotations": {"x.io/y": "1"}}},
            id="escapes",
        ),
        pytest.param({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}, id="test-for-absence"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "", "value": {}}], {}, id="the-whole-document"),
        pytest.param({"a": 1}, [{"op": "add", "path": "/b"}], {"a": 1, "b": None}, id="no-value"),
        pytest.param({"a": 1}, [{"op": "add", "path": "x/b", "value": 2}], {"a": 1, "b": 2}, id="no-slash-first"),
        pytest.param({"a": 1}, None, {"a": 1}, id="null"),
    ],
)
def test_json_patch(doc: Json, ops: Json, want: Json) -> None:
    before = copy.deepcopy((doc, ops))
    assert json_patch(doc, ops) == want
    assert (doc, ops) == before


@pytest.mark.parametrize(
    ("ops", "reason", "message"),
    [
        pytest.param({}, "BadRequest", "list of operations", id="not-a-list"),
        pytest.param([1], "BadRequest", "list of operations", id="not-an-operation"),
        pytest.param([{"op": "grow", "path": "/a"}], "Invalid", "Unexpected kind: grow", id="unknown-operation"),
        pytest.param([{"op": "add", "value": 1}], "Invalid", "no path", id="no-path"),
        pytest.param([{"op": "add", "path": "a", "value": 1}], "Invalid", "start with '/'", id="no-pointer"),
        pytest.param([{"op": "add", "path": "", "value": {}}], "Invalid", "missing path", id="the-whole-document"),
        pytest.param(
            [{"op": "test", "path": "/a", "value": 2}],
            "Invalid",
            "testing value /a failed: test failed",
            id="test-fails",
        ),
        pytest.param([{"op": "test", "path": "/a", "value": True}], "Invalid", "test failed", id="true-is-not-one"),
        pytest.param([{"op": "remove", "path": "/b"}], "Invalid", 'missing path: "/b"', id="remove-nothing"),
        pytest.param(
            [{"op": "replace", "path": "/b/c", "value": 1}], "Invalid", 'missing path: "/b/c"', id="replace-no-parent"
        ),
        pytest.param([{"op": "add", "path": "/b/c", "value": 1}], "Invalid", 'missing path: "/b/c"', id="no-parent"),
        pytest.param([{"op": "add", "path": "/l/9", "value": 1}], "Invalid", "invalid index: 9", id="past-the-end"),
        pytest.param([{"op": "remove", "path": "/l/01"}], "Invalid", "missing path", id="leading-zero"),
        pytest.param([{"op": "remove", "path": "/l/-"}], "Invalid", "missing path", id="remove-after-the-end"),
        pytest.param([{"op": "move", "from": "/m", "path": "/m/x"}], "Invalid", "into itself", id="move-into-itself"),
    ],
)
def test_json_patch_refused(ops: Json, reason: str, message: str) -> None:
    with pytest.raises(PatchError) as refused:
        json_patch({"a": 1, "l": [1], "m": {}}, ops)
    assert refused.value.reason == reason
    assert message in refused.value.message


# The examples of RFC 7396, appendix A, that lay an object over something.
@pytest.mark.parametrize(
    ("doc", "patch", "want"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="list-to-scalar"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="scalar-to-list"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="remove-what-is-not"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="lists-are-replaced"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null-in-the-document-stays"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls-do-not-arrive"),
    ],
)
def test_merge_patch(doc: Json, patch: Json, want: Json) -> None:
    before = copy.deepcopy((doc, patch))
    assert merge_patch(doc, patch) == want
    assert (doc, patch) == before


def containers(*names: str, **more: Json) -> Json:
    return {"spec": {"containers": [{"name": name, **more} for name in names]}}


CONDITIONS = {"status": {"conditions": [{"type": "A", "status": "0"}, {"type": "B", "status": "0"}]}}


@pytest.mark.parametrize(
    ("schema", "doc", "patch", "want"),
    [
        pytest.param(
            POD,
            containers("a", "b", image="1"),
            {"spec": {"containers": [{"name": "b", "image": "2"}]}},
            {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}},
            id="list-item-found-by-its-key",
        ),
        pytest.param(
            POD, containers("a", "b"), containers("c"), containers("c", "a", "b"), id="a-new-item-comes-first"
        ),
        pytest.param(
            POD,
            containers("a", "b"),
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            containers("b"),
            id="delete-a-list-item",
        ),
        pytest.param(
            POD,
            containers("a", "b"),
            {"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}},
            containers("c"),
            id="replace-a-list",
        ),
        pytest.param(
            POD,
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
            {"metadata": {"labels": {"c": "3"}}},
            id="replace-a-map",
        ),
        pytest.param(
            POD,
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"$patch": "delete"}}},
            {"metadata": {"labels": {}}},
            id="delete-a-maps-contents",
        ),
        pytest.param(
            POD,
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": None}, "annotations": {"x": None, "y": "z"}}},
            {"metadata": {"labels": {"b": "2"}, "annotations": {"y": "z"}}},
            id="nulls-remove-and-never-arrive",
        ),
        pytest.param(
            POD,
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            id="atomic-list",
        ),
        pytest.param(
            POD,
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"$patch": "delete", "key": "a"}]}},
            {"spec": {"tolerations": [{"$patch": "delete", "key": "a"}]}},
            id="an-atomic-list-knows-no-directives",
        ),
        pytest.param(
            POD,
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
            {"metadata": {"finalizers": ["a", "b", "c"]}},
            id="set-of-scalars",
        ),
        pytest.param(
            POD,
            {"metadata": {"finalizers": ["a", "b", "c"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}},
            {"metadata": {"finalizers": ["a", "c"]}},
            id="delete-from-a-list-of-scalars",
        ),
        pytest.param(
            POD,
            {"metadata": {"finalizers": ["a", "b", "c"]}},
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["b"],
                    "$setElementOrder/finalizers": ["d", "c", "a"],
                    "finalizers": ["d"],
                }
            },
            {"metadata": {"finalizers": ["d", "c", "a"]}},
            id="delete-add-and-order-scalars",
        ),
        pytest.param(
            DEPLOYMENT,
            {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            {"spec": {"strategy": {"type": "Recreate"}}},
            id="retain-keys-of-a-union",
        ),
        pytest.param(
            POD,
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}, {"name": "w", "emptyDir": {}}]}},
            id="retain-keys-of-a-list-item",
        ),
        pytest.param(
            POD,
            containers("a", "b", "c"),
            {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}},
            containers("b", "c", "a"),
            id="order-alone-moves-what-it-names",
        ),
        pytest.param(
            POD,
            CONDITIONS,
            {
                "status": {
                    "$setElementOrder/conditions": [{"type": "B"}, {"type": "C"}, {"type": "A"}],
                    "conditions": [{"type": "B", "status": "1"}, {"type": "C", "status": "1"}],
                }
            },
            {
                "status": {
                    "conditions": [
                        {"type": "B", "status": "1"},
                        {"type": "C", "status": "1"},
                        {"type": "A", "status": "0"},
                    ]
                }
            },
            id="order-with-a-change-and-an-addition",
        ),
        pytest.param(
            POD,
            {
                "spec": {
                    "containers": [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2, "name": "x"}]}]
                }
            },
            {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 2, "name": "y"}]}]}},
            {
                "spec": {
                    "containers": [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2, "name": "y"}]}]
                }
            },
            id="a-list-in-a-list",
        ),
        pytest.param(POD, {"status": {}}, CONDITIONS, CONDITIONS, id="a-list-where-there-was-none"),
        pytest.param(
            POD,
            {},
            {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "image": None}]}},
            containers("a"),
            id="directives-and-nulls-do-not-arrive",
        ),
        pytest.param(POD, containers("a"), {"spec": {"containers": None}}, {"spec": {}}, id="null-removes-a-list"),
        pytest.param(POD, containers("a"), {"spec": None, "kind": "Pod"}, {"kind": "Pod"}, id="null-removes-an-object"),
    ],
)
def test_strategic_merge(schema: SchemaNode, doc: Json, patch: Json, want: Json) -> None:
    before = copy.deepcopy((doc, patch))
    assert strategic_merge(doc, patch, schema) == want
    assert (doc, patch) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param([], "is an object", id="not-an-object"),
        pytest.param({"metadata": {"$patch": "explode"}}, "unknown patch type: explode", id="unknown-directive"),
        pytest.param({"spec": {"containers": [{"image": "x"}]}}, "declared merge key: name", id="item-without-its-key"),
        pytest.param({"spec": {"containers": ["x"]}}, "declared merge key: name", id="item-of-another-type"),
        pytest.param({"spec": {"containers": [{"name": []}]}}, "declared merge key: name", id="key-that-is-a-list"),
        pytest.param(
            {"spec": {"containers": [{"$patch": "delete"}]}}, "no merge key defined", id="delete-without-a-key"
        ),
        pytest.param({"spec": {"containers": [{"$patch": "merge"}]}}, "merging lists", id="merge-a-list"),
        pytest.param({"spec": {"$retainKeys": ["a"], "b": 1}}, "format of retainKeys", id="retain-keys-forgets-one"),
        pytest.param(
            {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
            "format of setElementOrder list",
            id="order-forgets-one",
        ),
        pytest.param(
            {"spec": {"$setElementOrder/containers": "a"}}, "format of setElementOrder list", id="order-no-list"
        ),
        pytest.param({"metadata": {"$patch": "merge"}}, "unknown patch type: merge", id="merge-a-map"),
    ],
)
def test_strategic_merge_refused(patch: Json, message: str) -> None:
    with pytest.raises(PatchError, match=message) as refused:
        strategic_merge({"metadata": {"finalizers": ["f"]}, **containers("a")}, patch, POD)
    assert refused.value.reason == "BadRequest"


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"])
names = st.sampled_from(["a", "b", "c", "a/b", "m~n", "0"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
objects = st.dictionaries(names, values, max_size=3)


def merged_by_the_rfc(target: Json, patch: Json) -> Json:
    """The pseudo-code of RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merged_by_the_rfc(target.get(name), value)
    return target


@given(objects, objects)
def test_merge_patch_is_the_rfcs(doc: Json, patch: Json) -> None:
    before = copy.deepcopy(doc)
    assert same_json(merge_patch(doc, patch), merged_by_the_rfc(doc, patch))
    assert same_json(doc, before)


@given(objects, objects)
def test_json_patch_undoes_any_difference(old: Json, new: Json) -> None:
    ops = jsonpatch.make_patch(old, new).patch
    assert json_patch(old, ops) == new


pointers = st.lists(names | st.sampled_from(["1", "-"]), min_size=1, max_size=3).map(
    lambda parts: "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
)
operations = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": pointers, "value": values}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": pointers}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "from": pointers, "path": pointers}),
)


def _as_upstream(doc: Json, op: Json) -> Json:
    """The operation; kube-apiserver also replaces a member that is not there, as if it were added."""
    parent, _, member = op["path"].rpartition("/")
    name = member.replace("~1", "/").replace("~0", "~")
    pointer = jsonpointer.resolve_pointer(doc, parent, None)
    return {**op, "op": "add"} if op["op"] == "replace" and isinstance(pointer, dict) and name not in pointer else op


@settings(max_examples=300)
@given(objects, st.lists(operations, max_size=3))
def test_json_patch_agrees_with_the_package(doc: Json, ops: Json) -> None:
    try:
        want = doc
        for op in ops:
            want = jsonpatch.apply_patch(want, [_as_upstream(want, op)])
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError):
        with pytest.raises(PatchError):
            json_patch(doc, ops)
    else:
        assert same_json(json_patch(doc, ops), want)


items = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abcd")}, optional={"image": st.sampled_from(["1", "2"]), "args": st.just(["x"])}
    ),
    max_size=4,
    unique_by=lambda item: item["name"],
)
pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=3),
                "finalizers": st.lists(st.sampled_from("fgh"), unique=True, max_size=3),
            },
        ),
        "spec": st.fixed_dictionaries({"containers": items}),
    },
)


@given(pods, pods)
def test_a_strategic_merge_twice_is_a_merge_once(doc: Json, patch: Json) -> None:
    before = copy.deepcopy((doc, patch))
    once = strategic_merge(doc, patch, POD)
    assert strategic_merge(once, patch, POD) == once
    assert strategic_merge(doc, {}, POD) == doc
    assert (doc, patch) == before


@given(pods, pods)
def test_a_strategic_merge_keeps_the_object_and_adds_the_patch(doc: Json, patch: Json) -> None:
    def named(obj: Json) -> dict[str, Json]:
        return {item["name"]: item for item in obj.get("spec", {}).get("containers", [])}

    merged, old, new = (named(obj) for obj in (strategic_merge(doc, patch, POD), doc, patch))
    assert merged == {name: {**old.get(name, {}), **new.get(name, {})} for name in old.keys() | new.keys()}
