"""Variables of a container: of objects, of the pod's own fields and amounts; what is missing, and what may be."""

from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.harness.nodes.references import Objects, References, wanted_of
from seatrial.harness.nodes.runtimes.tests.rig import work
from seatrial.harness.nodes.variables import Unresolved, resolve_env
from seatrial.scheduler.api.transport import Request

OBJECTS = {("configmap", "settings"): {"colour": b"blue", "not a name": b"x"}, ("secret", "login"): {"user": b"me"}}


def value(source: dict[str, Any]) -> str | None:
    """What a variable of that source gets."""
    one = work(
        "true", env=[{"name": "A", "valueFrom": source}], resources={"limits": {"cpu": "1500m", "memory": "1Gi"}}
    )
    env = resolve_env(one.pod, one.pod.spec.containers[0], {}, ip="127.64.0.1", host_ip="10.0.0.1", objects=OBJECTS)
    return env.get("A")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param({"configMapKeyRef": {"name": "settings", "key": "colour"}}, "blue", id="a-key-of-a-configmap"),
        pytest.param({"secretKeyRef": {"name": "login", "key": "user"}}, "me", id="a-key-of-a-secret"),
        pytest.param(
            {"configMapKeyRef": {"name": "settings", "key": "no", "optional": True}}, None, id="an-optional-key"
        ),
        pytest.param({"fieldRef": {"fieldPath": "status.podIP"}}, "127.64.0.1", id="the-pod-s-address"),
        pytest.param({"fieldRef": {"fieldPath": "status.hostIP"}}, "10.0.0.1", id="the-node-s-address"),
        pytest.param({"resourceFieldRef": {"resource": "limits.cpu"}}, "2", id="cores-rounded-up"),
        pytest.param({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500", id="thousandths"),
        pytest.param({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "1024", id="mebibytes"),
        pytest.param({"resourceFieldRef": {"resource": "requests.cpu"}}, "0", id="what-the-pod-does-not-say"),
    ],
)
def test_where_a_variable_comes_from(source: dict[str, Any], text: str | None) -> None:
    assert value(source) == text


def test_a_key_that_must_be_there() -> None:
    with pytest.raises(Unresolved, match="couldn't find key size in configmap settings"):
        value({"configMapKeyRef": {"name": "settings", "key": "size"}})


def test_whole_objects_come_first_and_the_pod_s_own_words_win() -> None:
    one = work(
        "true",
        envFrom=[{"configMapRef": {"name": "settings"}}, {"prefix": "P_", "secretRef": {"name": "login"}}],
        env=[{"name": "colour", "value": "red"}],
    )
    env = resolve_env(one.pod, one.pod.spec.containers[0], {}, objects=OBJECTS)
    assert (env["colour"], env["P_user"]) == ("red", "me")
    assert "not a name" not in env


def test_objects_are_read_and_what_is_missing_is_named() -> None:
    """From the API server itself; a token is asked for, and bound to the pod."""
    stored = {
        "configmaps": {"metadata": {"name": "settings"}, "data": {"colour": "blue"}, "binaryData": {"raw": "AAE="}},
        "secrets": {"metadata": {"name": "login"}, "data": {"user": "bWU="}},
    }
    token = {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 600, "path": "token"}}
    volumes = [
        {"name": "v", "configMap": {"name": "absent"}},
        {"name": "w", "projected": {"sources": [{"secret": {"name": "login"}}, token]}},
    ]
    pod = work(
        "true",
        envFrom=[{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "gone", "optional": True}}],
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}],
        pod={"volumes": volumes},
    ).pod
    seen: list[Objects] = []
    with VirtualBackend().start() as cluster:
        for kind, body in stored.items():
            answer = cluster.call(Request("POST", f"/api/v1/namespaces/default/{kind}", orjson.dumps(body)))
            assert answer.ok, answer.body
        account = {"metadata": {"name": "default"}}
        cluster.call(Request("POST", "/api/v1/namespaces/default/serviceaccounts", orjson.dumps(account)))
        References(cluster.transport).gather(pod, seen.append)
        assert cluster.wait(lambda: bool(seen), within=5.0)
    (objects,) = seen
    assert objects.contents["configmap", "settings"] == {"colour": b"blue", "raw": b"\x00\x01"}
    assert objects.contents["secret", "login"] == {"user": b"me"}
    assert [name for name in objects.missing if not name.startswith("token")] == ['configmap "absent" not found']
    assert wanted_of(pod) == {
        ("configmap", "settings"): False,
        ("secret", "gone"): True,
        ("secret", "login"): False,
        ("configmap", "absent"): False,
        ("token", "vault/600"): False,
    }
