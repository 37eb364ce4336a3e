"""The requests of `bench hostile`: each would block the server's event loop without a limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from seatrial.harness.apiserver import VALUES_LIMIT
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

YAML: Final = "application/yaml"
NAMESPACE: Final = "seatrial-hostile"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
PODS: Final = f"{CORE}/pods"
CRON_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_BODY: Final = 3 * 1024 * 1024 - 4096  # bytes, just below the limit of a body
_MANY: Final = VALUES_LIMIT - 1000


@dataclass(frozen=True, slots=True)
class Sending:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Attack:
    """The administrator sends `setup` once, then `by` sends `request(number)` for each round.

    Attacks on one server use different names.
    """

    name: str
    request: Callable[[int], Sending]
    setup: tuple[Sending, ...] = ()
    by: Literal["administrator", "stranger", "revoked account"] = "administrator"


def _post(path: str, body: Any) -> Sending:
    return Sending("POST", path, body if isinstance(body, bytes) else orjson.dumps(body))


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler places."""
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulerName": "absent-scheduler", "containers": containers, **spec},
    }


def _config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def _custom(name: str, schema: Any, spec: Callable[[int], Any]) -> Attack:
    """An attack through the schema of a custom resource."""
    plural, group = f"{name}s".replace("-", ""), "hostile.seatrial.dev"
    kind = plural.capitalize()
    root = {"type": "object", "properties": {"spec": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }

    def request(number: int) -> Sending:
        body = {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": f"{name}-{number}"},
            "spec": spec(number),
        }
        return _post(f"/apis/{group}/v1/namespaces/{NAMESPACE}/{plural}", body)

    return Attack(name, request, (_post(DEFINITIONS, definition),))


def _containers(count: int) -> list[dict[str, Any]]:
    return [{"name": f"c{number}", "image": "a:1"} for number in range(count)]


def _workload(kind: str, number: int, **spec: Any) -> Sending:
    group = {"Job": "batch", "CronJob": "batch"}.get(kind, "apps")
    labels = {"app": f"{kind.lower()}-{number}"}
    template = {"metadata": {"labels": labels}, "spec": pod("")["spec"]}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": labels}
    body = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": f"{kind.lower()}-{number}"},
        "spec": {**spec, "template": template},
    }
    return _post(f"/apis/{group}/v1/namespaces/{NAMESPACE}/{kind.lower()}s", body)


def _merge_bomb(levels: int, width: int) -> bytes:
    rows = [b"a0: &a0 {x: 1, y: 2}\n"]
    for level in range(1, levels):
        before = b",".join([b"*a%d" % (level - 1)] * width)
        rows.append(b"a%d: &a%d {<<: [%s]}\n" % (level, level, before))
    return b"".join(rows)


def _rules(rule: str, count: int, most: int) -> dict[str, Any]:
    """A list of at most `most` items with the rule `count` times; its estimated cost must be accepted."""
    return {
        "type": "array",
        "maxItems": most,
        "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": rule}] * count,
    }


def _long_rules(number: int) -> Sending:
    """A definition with as many long rules as a body can hold, no two alike."""
    rule = " && ".join(["self != {}"] * 300)
    rules = [{"rule": rule.replace("{}", f"'{number}-{at}'")} for at in range(19)]
    field = {"type": "string", "maxLength": 9, "x-kubernetes-validations": rules}
    made = _custom(f"long-{number}", field, lambda _: "")
    return made.setup[0]


def _open_literal(number: int) -> Sending:
    """A definition with a rule of backslashes in a literal that does not end."""
    field = {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": '["' + "\\" * 9_000}]}
    return _custom(f"open-{number}", field, lambda _: "").setup[0]


def _large_definition(number: int) -> Sending:
    """A definition with as many values as one may have."""
    fields = {f"field{at}": {"type": "string", "description": "a field", "maxLength": 9} for at in range(14_000)}
    return _custom(f"large-{number}", {"type": "object", "properties": fields}, lambda _: {}).setup[0]


def _policy(number: int) -> Sending:
    """A dry run of a config map that a policy with many costly expressions judges."""
    return _post(f"{CORE}/configmaps?dryRun=All", _config(f"judged-{number}", **{f"k{at}": "v" for at in range(300)}))


def _policy_setup() -> tuple[Sending, Sending]:
    group = "/apis/admissionregistration.k8s.io/v1"
    constraints = {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        ]
    }
    rule = "object.data.all(a, object.data.all(b, a + b != 'x'))"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "seatrial-hostile"},
        "spec": {"matchConstraints": constraints, "validations": [{"expression": rule}] * 20},
    }
    named = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "seatrial-hostile"},
        "spec": {"policyName": "seatrial-hostile", "validationActions": ["Deny"], "matchResources": named},
    }
    return (
        _post(f"{group}/validatingadmissionpolicies", policy),
        _post(f"{group}/validatingadmissionpolicybindings", binding),
    )


def _copies(_: int) -> Sending:
    """A JSON patch that doubles its value with each operation."""
    first: list[dict[str, Any]] = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}]
    operations = first + [{"op": "copy", "from": "/metadata/annotations", "path": "/metadata/annotations/a"}] * 40
    return Sending("PATCH", f"{CORE}/configmaps/patched?dryRun=All", orjson.dumps(operations), JSON_PATCH)


def _operations(_: int) -> Sending:
    operations = [{"op": "add", "path": "/data/a", "value": "1"}] * 4_500
    return Sending("PATCH", f"{CORE}/configmaps/patched?dryRun=All", orjson.dumps(operations), JSON_PATCH)


def _strategic(_: int) -> Sending:
    body = {"spec": {"tolerations": [{"key": f"k{at}", "operator": "Exists"} for at in range(_MANY // 3)]}}
    return Sending("PATCH", f"{PODS}/patched?dryRun=All", orjson.dumps(body), STRATEGIC_MERGE_PATCH)


def _applied(number: int) -> Sending:
    body = orjson.dumps(pod(f"applied-{number}", containers=_containers(_MANY // 3)))
    return Sending("PATCH", f"{PODS}/applied-{number}?fieldManager=hostile&dryRun=All", body, APPLY_PATCH)


def _selector(_: int) -> Sending:
    names = ",".join(f"v{at}" for at in range(3000))
    return Sending("GET", f"{CORE}/configmaps?labelSelector=a%20in%20({names})&limit=1")


def _query(name: str, value: str, *, by: Literal["administrator", "stranger"] = "administrator") -> Attack:
    """A list with one long parameter."""
    return Attack(f"{name}-{len(value)}", lambda _: Sending("GET", f"{PODS}?{name}={value}"), by=by)


def _cron_job(schedule: str) -> Sending:
    template = {"spec": pod("")["spec"] | {"restartPolicy": "Never"}}
    spec = {"schedule": schedule, "suspend": True, "jobTemplate": {"spec": {"template": template}}}
    return _post(CRON_JOBS, {"metadata": {"name": "cron"}, "spec": spec})


def _resumed(number: int) -> Sending:
    """Starts that were missed each minute since 1970."""
    body = orjson.dumps({"spec": {"suspend": False, "startingDeadlineSeconds": 2_000_000_000 + number}})
    return Sending("PATCH", f"{CRON_JOBS}/cron", body, MERGE_PATCH)


_LAST_START = orjson.dumps({"status": {"lastScheduleTime": "1970-01-01T00:00:00Z"}})
_PATCHED = (_post(f"{CORE}/configmaps", _config("patched", a="1")), _post(PODS, pod("patched")))
_NUMBERS = list(range(1000))

ATTACKS: Final[Sequence[Attack]] = (
    _custom("pattern", {"type": "string", "pattern": "^(a+)+$"}, lambda _: "a" * 100_000 + "b"),
    _custom("large-pattern", {"type": "string", "pattern": "(a|b)*a(a|b){500}"}, lambda _: "ab" * 100_000),
    _custom(
        "enum",
        {"type": "array", "items": {"type": "string", "enum": [f"v{at}" for at in range(3000)]}},
        lambda _: ["x"] * _MANY,
    ),
    _custom(
        "set",
        {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        lambda _: list(range(_MANY)),
    ),
    _custom("rule", _rules("self.all(x, self.all(y, x + y >= 0))", 10, 1_000), lambda _: _NUMBERS),
    _custom("rule-on-values", _rules("self.all(x, x >= 0)", 1, 100_000), lambda _: _NUMBERS * 15),
    _custom(
        "combined",
        {"type": "array", "items": {"type": "integer", "anyOf": [{"minimum": at} for at in range(200)]}},
        lambda _: [-1] * 5000,
    ),
    Attack("long-rules", _long_rules),
    Attack("open-literal", _open_literal),
    Attack("definition", _large_definition),
    Attack("too-many-values", lambda number: _post(PODS, pod(f"m-{number}", containers=_containers(40_000)))),
    Attack("policy", _policy, _policy_setup()),
    Attack("merge-bomb", lambda _: Sending("POST", f"{CORE}/configmaps", _merge_bomb(12, 9), YAML)),
    Attack(
        "yaml-values", lambda _: Sending("POST", f"{CORE}/configmaps", b"x: [" + b"1," * (_BODY // 2) + b"1]", YAML)
    ),
    Attack(
        "yaml-99999-values", lambda _: Sending("POST", f"{CORE}/configmaps", b"x: [" + b"1," * 99_000 + b"1]", YAML)
    ),
    Attack("yaml-text", lambda _: Sending("POST", f"{CORE}/configmaps", b"x: " + b"a" * _BODY, YAML)),
    Attack("json-values", lambda _: _post(f"{CORE}/configmaps", b'{"x": [' + b"1," * (_BODY // 2) + b"1]}")),
    Attack("json-fields", lambda _: _post(PODS, {"metadata": {"name": "x"}, **{f"f{at}": 1 for at in range(_MANY)}})),
    Attack(
        "containers", lambda number: _post(f"{PODS}?dryRun=All", pod(f"c-{number}", containers=_containers(_MANY // 3)))
    ),
    Attack(
        "same-containers",
        lambda number: _post(PODS, pod(f"s-{number}", containers=[{"name": "same", "image": "a:1"}] * (_MANY // 3))),
    ),
    Attack(
        "tolerations",
        lambda number: _post(
            f"{PODS}?dryRun=All", pod(f"t-{number}", tolerations=[{"operator": "Exists"}] * (_MANY // 2))
        ),
    ),
    Attack(
        "quantity",
        lambda number: _post(
            PODS,
            pod(
                f"q-{number}", containers=[{"name": "m", "image": "a:1", "resources": {"limits": {"cpu": "1e1000000"}}}]
            ),
        ),
    ),
    Attack("long-name", lambda _: _post(PODS, pod("a." * (_BODY // 4) + "-"))),
    Attack(
        "labels",
        lambda _: _post(
            f"{CORE}/configmaps?dryRun=All",
            {"metadata": {"name": "x", "labels": {f"a/{at}": "-" for at in range(_MANY)}}},
        ),
    ),
    Attack("replicas", lambda number: _workload("ReplicaSet", number, replicas=2_000_000_000)),
    Attack("deployment", lambda number: _workload("Deployment", number, replicas=2_000_000_000)),
    Attack(
        "statefulset",
        lambda number: _workload(
            "StatefulSet", number, replicas=2_000_000_000, podManagementPolicy="Parallel", serviceName="x"
        ),
    ),
    Attack("job", lambda number: _workload("Job", number, parallelism=2_000_000_000, completions=2_000_000_000)),
    Attack("copies", _copies, _PATCHED),
    Attack("operations", _operations, _PATCHED),
    Attack("strategic-list", _strategic, _PATCHED),
    Attack("apply", _applied),
    Attack("selector", _selector),
    _query("timeout", "0" * 50_000 + "x", by="stranger"),
    _query("fieldSelector", "+" * 50_000),
    _query("fieldSelector", "metadata.name=a" + "+" * 20_000 + "x"),
    _query("fieldSelector", ",".join(f"metadata.name!={at}" for at in range(2_500))),
    _query("labelSelector", "a," * 25_000 + "a"),
    _query("labelSelector", ",".join(f"!a{at}" for at in range(990))),
    Attack("parameters", lambda number: Sending("GET", f"/healthz?n={number}" + "&a=" * 15_000), by="stranger"),
    Attack("revoked", lambda _: Sending("GET", "/api/v1/namespaces"), by="revoked account"),
    Attack("schedule", lambda _: _cron_job("1/2," * 300_000 + " * * * *")),
    Attack(
        "missed-starts",
        _resumed,
        (_cron_job("* * * * *"), Sending("PATCH", f"{CRON_JOBS}/cron/status", _LAST_START, MERGE_PATCH)),
    ),
    _custom(
        "defaults",
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {f"p{at}": {"type": "string", "default": "x" * 1_000} for at in range(500)},
            },
        },
        lambda _: [{}] * 10_000,
    ),
)
