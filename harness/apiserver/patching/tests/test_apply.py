"""Server-side apply and field ownership, with the schemas of real kinds."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.harness.apiserver.patching.apply import LAST_APPLIED, ApplyConflict, apply
from seatrial.harness.apiserver.patching.field_ownership import update_managed
from seatrial.harness.apiserver.patching.patch import PatchError
from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode, schema_for, schema_of_crd

# Examples do not depend on chance or on the speed of the machine.

Json = Any
T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"


def kind(group: str, version: str, name: str) -> SchemaNode:
    schema = schema_for(group, version, name)
    assert schema is not None
    return schema


DEPLOYMENT = kind("apps", "v1", "Deployment")
CONFIG_MAP = kind("", "v1", "ConfigMap")
SERVICE = kind("", "v1", "Service")
POD = kind("", "v1", "Pod")


def deployment(*containers: Json, metadata: Json = None, **spec: Json) -> Json:
    template = {"template": {"spec": {"containers": list(containers)}}} if containers else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **(metadata or {})},
        "spec": {**spec, **template},
    }


def config_map(metadata: Json = None, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **(metadata or {})}, "data": data}


def applied(live: Json, config: Json, manager: str = "m", *, force: bool = False, now: str = T0) -> Json:
    schema = schema_for(*_gvk(config))
    return apply(live, config, manager=manager, force=force, schema=schema, now=now, api_version=config["apiVersion"])


def updated(before: Json, after: Json, manager: str = "u", *, now: str = T0, subresource: str = "") -> Json:
    entries = update_managed(
        before,
        after,
        manager=manager,
        schema=schema_for(*_gvk(after)),
        now=now,
        api_version=after["apiVersion"],
        subresource=subresource,
    )
    return {**after, "metadata": {**after["metadata"], "managedFields": entries}}


def _gvk(obj: Json) -> tuple[str, str, str]:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, obj["kind"]


def owners(obj: Json) -> dict[str, Json]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def plain(obj: Json) -> Json:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


WEB = {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}


def test_the_first_apply_owns_its_configuration() -> None:
    config = deployment(WEB, metadata={"labels": {"app": "web"}}, replicas=3)
    before = copy.deepcopy(config)
    obj = applied(None, config)
    assert config == before
    assert plain(obj) == config
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "apps/v1",
            "time": T0,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:replicas": {},
                    "f:template": {
                        "f:spec": {
                            "f:containers": {
                                'k:{"name":"web"}': {
                                    ".": {},
                                    "f:image": {},
                                    "f:name": {},
                                    "f:ports": {
                                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                                    },
                                }
                            }
                        }
                    },
                },
            },
        }
    ]


def test_the_message_of_a_single_conflict() -> None:
    live = updated(None, deployment(replicas=3), "kubectl")
    with pytest.raises(ApplyConflict) as refused:
        applied(live, deployment(replicas=5))
    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'
    )
    assert refused.value.conflicts == [("kubectl", ".spec.replicas")]
    assert refused.value.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl" using apps/v1',
            "field": ".spec.replicas",
        }
    ]


def test_several_conflicts_are_listed_by_manager() -> None:
    live = updated(None, deployment({"name": "web", "image": "a"}, replicas=3, paused=True), "x")
    live = applied(live, deployment(minReadySeconds=5), "b")
    with pytest.raises(ApplyConflict) as refused:
        applied(live, deployment({"name": "web", "image": "b"}, replicas=5, minReadySeconds=6))
    assert refused.value.message == (
        'Apply failed with 3 conflicts: conflicts with "b":\n- .spec.minReadySeconds\n'
        'conflicts with "x" using apps/v1:\n- .spec.replicas\n- .spec.template.spec.containers[name="web"].image'
    )


def test_a_subresource_is_named_in_a_conflict() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Running"}}
    live = updated({**pod, "status": {}}, pod, "kubelet", subresource="status")
    with pytest.raises(ApplyConflict, match=r'"kubelet" with subresource "status" using v1: \.status\.phase'):
        applied(live, {**pod, "status": {"phase": "Failed"}})


def test_force_takes_the_field_over() -> None:
    live = updated(None, deployment(replicas=3, paused=True), "x")
    obj = applied(live, deployment(replicas=5), force=True, now=T1)
    assert obj["spec"] == {"replicas": 5, "paused": True}
    assert owners(obj) == {"m": {"f:spec": {"f:replicas": {}}}, "x": {"f:spec": {"f:paused": {}}}}


def test_the_same_value_is_shared() -> None:
    live = applied(None, deployment(replicas=3), "a")
    obj = applied(live, deployment(replicas=3), "b", now=T1)
    assert set(owners(obj)) == {"a", "b"}
    assert applied(obj, deployment(), "a", now=T2)["spec"] == {"replicas": 3}, "given up by one, kept for the other"


def test_an_apply_that_changes_nothing_is_the_live_object() -> None:
    live = applied(None, deployment(WEB, replicas=3))
    assert applied(live, deployment(WEB, replicas=3), now=T1) is live


SIDECAR = {"name": "sidecar", "image": "s"}


@pytest.mark.parametrize(
    ("first", "then", "want"),
    [
        pytest.param(deployment(replicas=1, paused=True), deployment(replicas=1), {"replicas": 1}, id="a-field"),
        pytest.param(
            deployment(WEB, SIDECAR),
            deployment(WEB),
            {"template": {"spec": {"containers": [WEB]}}},
            id="an-item-of-a-keyed-list",
        ),
        pytest.param(
            deployment({**WEB, "args": ["a", "b"]}),
            deployment({**WEB, "args": ["a"]}),
            {"template": {"spec": {"containers": [{**WEB, "args": ["a"]}]}}},
            id="an-atomic-list-is-replaced",
        ),
        pytest.param(
            deployment(strategy={"rollingUpdate": {"maxSurge": 1}}, replicas=1),
            deployment(replicas=1),
            {"replicas": 1},
            id="the-object-around-the-last-field",
        ),
        pytest.param(
            deployment(selector={"matchLabels": {"a": "b", "c": "d"}}),
            deployment(selector={"matchLabels": {"a": "b"}}),
            {"selector": {"matchLabels": {"a": "b"}}},
            id="an-atomic-map-is-replaced",
        ),
    ],
)
def test_a_field_that_its_manager_gives_up_is_removed(first: Json, then: Json, want: Json) -> None:
    live = applied(None, first)
    obj = applied(live, then, now=T1)
    assert obj["spec"] == want
    assert owners(obj)["m"] == owners(applied(None, then)).get("m")


def test_a_field_with_another_owner_stays_when_it_is_given_up() -> None:
    live = applied(None, config_map({"labels": {"a": "1", "b": "1"}}, x="1", y="1"), "a")
    live = applied(live, config_map(x="1"), "b", now=T1)
    obj = applied(live, config_map(y="1"), "a", now=T2)
    assert obj["data"] == {"x": "1", "y": "1"}
    assert "labels" not in obj["metadata"]


def test_the_servers_own_metadata_outlives_the_last_owned_field_there() -> None:
    live = applied(None, config_map({"labels": {"a": "b"}}))
    live["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert plain(applied(live, config_map(), now=T1))["metadata"] == {"name": "c", "uid": "u", "resourceVersion": "7"}


def test_a_defaulted_field_stays_in_an_item_that_stays_and_goes_with_one_that_goes() -> None:
    live = applied(None, deployment({"name": "a", "image": "1"}, {"name": "b", "image": "1"}))
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"  # as defaulting would: no manager owns it
    obj = applied(live, deployment({"name": "a"}), now=T1)
    assert obj["spec"]["template"]["spec"]["containers"] == [{"name": "a", "imagePullPolicy": "Always"}]


def test_an_item_that_another_manager_put_something_into_keeps_that() -> None:
    live = applied(None, deployment({"name": "a", "image": "1"}), "a")
    live = applied(live, deployment({"name": "a", "tty": True}), "b", now=T1)
    obj = applied(live, deployment(), "a", now=T2)
    assert obj["spec"]["template"]["spec"]["containers"] == [{"name": "a", "tty": True}]


@pytest.mark.parametrize(
    ("live", "config", "want"),
    [
        pytest.param("ab", "ba", "ba", id="the-configuration-orders"),
        pytest.param("axb", "ba", "xba", id="a-stranger-keeps-its-place"),
        pytest.param("ab", "acb", "acb", id="a-new-one-in-between"),
        pytest.param("xy", "ab", "xyab", id="new-ones-after-strangers"),
        pytest.param("abx", "ab", "abx", id="a-stranger-at-the-end"),
        pytest.param("", "ab", "ab", id="all-new"),
    ],
)
def test_the_order_of_a_keyed_list(live: str, config: str, want: str) -> None:
    before = deployment(*({"name": name} for name in live))
    obj = applied(before, deployment(*({"name": name} for name in config)), force=True)
    assert "".join(each["name"] for each in obj["spec"]["template"]["spec"]["containers"]) == want


def test_one_port_number_with_two_protocols_is_two_items() -> None:
    def service(*ports: Json) -> Json:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": list(ports)}}

    live = applied(None, service({"port": 53, "name": "tcp"}), "a")
    obj = applied(live, service({"port": 53, "protocol": "UDP", "name": "udp"}), "b", now=T1)
    assert [port["name"] for port in obj["spec"]["ports"]] == ["tcp", "udp"]


def test_finalizers_are_owned_one_by_one() -> None:
    live = applied(None, config_map({"finalizers": ["x/a"]}), "a")
    live = applied(live, config_map({"finalizers": ["x/b"]}), "b", now=T1)
    assert live["metadata"]["finalizers"] == ["x/a", "x/b"]
    assert owners(live)["b"] == {"f:metadata": {"f:finalizers": {'v:"x/b"': {}}}, "f:data": {}}
    obj = applied(live, config_map(), "a", now=T2)
    assert obj["metadata"]["finalizers"] == ["x/b"]


def test_an_object_without_managed_fields_belongs_to_before_first_apply() -> None:
    live = config_map(x="1", y="1")
    with pytest.raises(ApplyConflict, match=r'"before-first-apply" using v1: \.data\.x'):
        applied(live, config_map(x="2"))
    obj = applied(live, config_map(x="1"))
    assert owners(obj) == {
        "m": {"f:data": {"f:x": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:x": {}, "f:y": {}}},
    }


class TestAfterClientSideApply:
    """kubectl goes over from client-side to server-side apply: what it wrote itself is no conflict."""

    def live(self) -> Json:
        written = deployment(replicas=3, paused=False)
        annotation = {LAST_APPLIED: orjson.dumps(written).decode()}
        obj = {**written, "metadata": {"name": "web", "annotations": annotation}}
        return updated(None, obj, "kubectl-client-side-apply")

    def test_its_own_fields_change_without_force(self) -> None:
        obj = applied(self.live(), deployment(replicas=5), "kubectl", now=T1)
        assert obj["spec"] == {"replicas": 5, "paused": False}
        assert orjson.loads(obj["metadata"]["annotations"][LAST_APPLIED])["spec"] == {"replicas": 5}
        assert "f:replicas" not in owners(obj)["kubectl-client-side-apply"]["f:spec"]

    def test_a_field_changed_since_client_side_apply_is_a_conflict(self) -> None:
        live = self.live()
        scaled = updated(live, {**live, "spec": {**live["spec"], "replicas": 9}}, "hpa", now=T1)
        with pytest.raises(ApplyConflict, match=r'conflict with "hpa" using apps/v1: \.spec\.replicas'):
            applied(scaled, deployment(replicas=5), "kubectl", now=T2)

    def test_another_manager_gets_the_conflict(self) -> None:
        with pytest.raises(ApplyConflict, match=r'"kubectl-client-side-apply" using apps/v1: \.spec\.replicas'):
            applied(self.live(), deployment(replicas=5), "argo", now=T1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(deployment({"image": "x"}), "omits key field 'name'", id="an-item-without-its-key"),
        pytest.param(deployment(WEB, WEB), r'duplicate entries for key \[name="web"\]', id="two-items-with-one-key"),
        pytest.param(
            config_map({"finalizers": ["a", "a"]}), r'duplicate entries for key \[="a"\]', id="a-set-with-one-twice"
        ),
        pytest.param(config_map({"managedFields": [{"manager": "x"}]}), "must be nil", id="owners-in-the-body"),
    ],
)
def test_invalid_configurations_are_refused(config: Json, message: str) -> None:
    with pytest.raises(PatchError, match=message) as refused:
        applied(None, config)
    assert refused.value.reason == "BadRequest"


class TestUpdate:
    def test_a_create_owns_everything_but_what_the_server_gives(self) -> None:
        obj = config_map({"uid": "u", "creationTimestamp": T0, "labels": {"a": "b"}}, x="1")
        assert updated(None, obj)["metadata"]["managedFields"] == [
            {
                "manager": "u",
                "operation": "Update",
                "apiVersion": "v1",
                "time": T0,
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:x": {}}, "f:metadata": {"f:labels": {".": {}, "f:a": {}}}},
            }
        ]

    def test_a_created_pod_looks_as_upstreams(self) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a", "image": "b", "resources": {}}], "securityContext": {}},
        }
        assert owners(updated(None, pod))["u"] == {
            "f:spec": {
                "f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
                "f:securityContext": {},
            }
        }

    def test_a_changed_field_belongs_to_its_writer(self) -> None:
        live = updated(None, config_map(x="1", y="1"), "a")
        live = updated(live, {**live, "data": {"x": "2", "y": "1"}}, "b", now=T1)
        assert owners(live) == {"a": {"f:data": {".": {}, "f:y": {}}}, "b": {"f:data": {"f:x": {}}}}
        assert [entry["time"] for entry in live["metadata"]["managedFields"]] == [T0, T1]

    def test_a_removed_field_has_no_owner(self) -> None:
        live = updated(None, config_map(x="1", y="1"), "a")
        live = updated(live, {**live, "data": {"y": "1"}}, "b", now=T1)
        assert owners(live) == {"a": {"f:data": {".": {}, "f:y": {}}}}

    def test_a_write_that_changes_nothing_leaves_the_list_alone(self) -> None:
        live = updated(None, config_map(x="1"), "a")
        again = copy.deepcopy(live)
        again["metadata"]["managedFields"] = live["metadata"]["managedFields"]
        assert updated(live, again, "b")["metadata"]["managedFields"] is live["metadata"]["managedFields"]

    def test_a_body_without_owners_keeps_the_stored_ones(self) -> None:
        live = updated(None, config_map(x="1"), "a")
        assert set(owners(updated(live, config_map(x="1", y="1"), "b"))) == {"a", "b"}

    @pytest.mark.parametrize(
        ("brought", "want"),
        [
            pytest.param([{}], set(), id="cleared"),
            pytest.param([{"manager": "z"}], {"a"}, id="unreadable-is-as-if-absent"),
            pytest.param(
                [
                    {
                        "manager": "z",
                        "operation": "Apply",
                        "apiVersion": "v1",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:data": {"f:x": {}}},
                    }
                ],
                {"z"},
                id="replaced",
            ),
        ],
    )
    def test_a_body_may_bring_owners(self, brought: Json, want: set[str]) -> None:
        live = updated(None, config_map(x="1"), "a")
        assert set(owners(updated(live, config_map({"managedFields": brought}, x="1"), "b"))) == want

    def test_old_updaters_become_one(self) -> None:
        live = updated(None, config_map(k="0"), "u00")
        for n in range(1, 15):
            time = f"2026-01-01T01:{n:02}:00Z"
            live = updated(live, {**live, "data": {**live["data"], f"k{n}": "1"}}, f"u{n:02}", now=time)
        assert len(owners(live)) <= 11
        assert "u14" in owners(live)
        assert "f:k1" in owners(live)["ancient-changes"]["f:data"]

    def test_a_custom_resource_without_list_keys(self) -> None:
        schema = schema_of_crd(
            {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "list": {"type": "array", "items": {"type": "object"}},
                            "n": {"type": "integer"},
                        },
                    }
                },
            }
        )
        obj = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"list": [{"a": 1}], "n": 1}}
        entries = update_managed(None, obj, manager="u", schema=schema, now=T0, api_version="x/v1")
        assert entries[0]["fieldsV1"] == {"f:spec": {".": {}, "f:list": {}, "f:n": {}}}


containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")},
        optional={"image": st.sampled_from("12"), "args": st.lists(st.sampled_from("xy"), max_size=2)},
    ),
    max_size=3,
    unique_by=lambda item: item["name"],
)
configs = st.builds(
    lambda items, labels, replicas: deployment(
        *items, metadata={"labels": labels} if labels else None, **({"replicas": replicas} if replicas else {})
    ),
    containers,
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2),
    st.integers(0, 2),
)


@given(st.lists(st.tuples(st.sampled_from("mn"), configs), min_size=1, max_size=4))
def test_each_manager_keeps_its_last_configuration(steps: list[tuple[str, Json]]) -> None:
    live = None
    for manager, config in steps:
        before = copy.deepcopy((live, config))
        obj = applied(live, config, manager, force=True)
        assert (live, config) == before
        assert applied(obj, config, manager, force=True, now=T1) is obj, "an apply twice is an apply once"
        assert applied(plain(obj), config, manager, now=T1)["spec"] == obj["spec"], "all of it is there"
        live = obj


@given(configs, configs)
def test_fields_that_a_sole_manager_drops_are_removed(first: Json, then: Json) -> None:
    def order_free(obj: Json) -> Json:
        spec = dict(obj.get("spec") or {})
        items = spec.pop("template", {}).get("spec", {}).get("containers", [])
        return spec, {item["name"]: item for item in items}, obj["metadata"].get("labels")

    assert order_free(plain(applied(applied(None, first), then, now=T1))) == order_free(then)
