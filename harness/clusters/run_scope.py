"""One run's part of a cluster that others use too: names, labels, taints and schedulers of its own.

Tests write names such as `n1`. On the API server every object without a namespace, and every namespace, has the run's
prefix (`st-1a2b3c-n1`) and the run's label. Requests are rewritten on their way out, responses on their way back, so
tests see their own names. A request that would change anything else is refused here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import orjson

from seatrial.harness.apiserver import KOORDINATOR
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.fleet import SIMULATED_LABEL
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.podgroup import GANG_NAME, POD_GROUP_LABEL, POD_GROUP_NAME_LABEL
from seatrial.scheduler.api.transport import Request, Response

RUN_LABEL = "seatrial.dev/run"
NODES_OF_NO_RUN = f"{SIMULATED_LABEL}=true"  # for agents of a cluster; each run has agents for its own nodes
KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", KOORDINATOR})
CLUSTER_SCOPED = {  # resource → kind of what a run may make outside of namespaces
    "nodes": "Node",
    "namespaces": "Namespace",
    "priorityclasses": "PriorityClass",
    "devices": "Device",
    "reservations": "Reservation",
    "nodemetrics": "NodeMetric",
    "noderesourcetopologies": "NodeResourceTopology",
    "podmigrationjobs": "PodMigrationJob",
    "storageclasses": "StorageClass",
    "persistentvolumes": "PersistentVolume",
    "csinodes": "CSINode",
    "deviceclasses": "DeviceClass",
    "resourceslices": "ResourceSlice",
    "devicetaintrules": "DeviceTaintRule",
}
_LISTED_WHOLE = frozenset({"nodes", "namespaces", "priorityclasses", "storageclasses", "persistentvolumes", "csinodes"})
# Fields, labels, annotations that name an object of the same namespace. A reference with a namespace is known by that.
_NAMES_IN_NAMESPACE = frozenset(
    {"claimName", "secretName", "serviceAccountName", "serviceName", GANG_NAME, POD_GROUP_LABEL, POD_GROUP_NAME_LABEL}
)
_KINDS = frozenset(CLUSTER_SCOPED.values())
_READS = frozenset({"GET", "HEAD"})
_SYSTEM = "system-"  # priority classes of Kubernetes
_PATH = re.compile(r"(?P<group>/api/v1|/apis/[^/]+/[^/]+)/(?P<resource>[^/]+)(?P<name>/[^/]+)?(?P<rest>/.*)?")


class RunScope:
    """Rewrites requests and responses for one run."""

    def __init__(self, run: str, *, own_schedulers: bool = True, deployed: str = "") -> None:
        """`own_schedulers`: schedulerName has the prefix too, because the run starts a scheduler of its own.

        `deployed`: the scheduler under test, which pods without a profile are for; "": the cluster's default scheduler.
        """
        self.run, self.prefix = run, f"st-{run}-"
        self._own_schedulers, self._deployed = own_schedulers, deployed or DEFAULT_SCHEDULER
        self._names: set[str] = set()  # as tests write them
        self._tolerated: dict[str, list[dict[str, Any]]] = {}  # taints that lent nodes had before, by name
        self._lent: dict[str, str] = {}  # as tests write them → nodes of the cluster that are lent
        self._shown: dict[str, str] = {}  # nodes that are or were lent → as tests wrote them last

    def scheduler_name(self, name: str) -> str:
        """The schedulerName on the API server."""
        if self._own_schedulers:
            return self.prefix + name
        return self._deployed if name == DEFAULT_SCHEDULER else name

    def lend(self, name: str, node: str, taints: Iterable[Mapping[str, Any]] = ()) -> None:
        """From now on `name` is a node of the cluster, which the run only reads; its pods tolerate `taints`."""
        self._lent[name] = node
        self._shown[node] = name
        self._tolerated[name] = [
            {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]} for taint in taints
        ]

    def unlend(self, name: str) -> None:
        """The node is not the run's any more. What the API server still sends of its pods keeps the name: no pod
        seems to move.
        """
        self._lent.pop(name, None)
        self._tolerated.pop(name, None)

    def outgoing(self, request: Request) -> Request:
        """The request as it is sent.

        Raises:
            ClusterError: it would change what does not belong to the run.
        """
        path, _, query = request.path.partition("?")
        match = _PATH.fullmatch(path)
        if match is None:
            self._only_reads(request, path)
            return request
        resource, name = match["resource"], unquote((match["name"] or "")[1:])
        body = request.body
        if body and (decoded := _decoded(body)) is not None:
            body = orjson.dumps(self._body(decoded, request.method))
        if resource not in CLUSTER_SCOPED or (resource == "namespaces" and name in KEPT_NAMESPACES):
            self._only_reads(request, path)
            return _with(request, path, self._query(query), body)
        if name in self._lent:
            self._only_reads(request, path)
            name = self._lent[name]
        elif name and not name.startswith(_SYSTEM):
            self._names.add(name)
            name = self.prefix + name
        elif name:
            self._only_reads(request, path)
        fields = self._query(query)
        if not name and resource == "nodes":
            chosen = f"{RUN_LABEL}={self.run}"
            fields["labelSelector"] = f"{fields['labelSelector']},{chosen}" if "labelSelector" in fields else chosen
        if not name and request.method not in {*_READS, "POST"}:
            raise ClusterError(f"{request.method} {path}: would change all {resource} of a cluster that others use")
        renamed = f"{match['group']}/{resource}{'/' if name else ''}{quote(name)}{match['rest'] or ''}"
        return _with(request, renamed, fields, body)

    def shows_others(self, request: Request) -> bool:
        """Whether the answer has objects of others too: a list or watch of all namespaces, or of what nodes own."""
        match = _PATH.fullmatch(request.path.partition("?")[0])
        if match is None or request.method != "GET" or match["name"]:
            return False
        return match["resource"] not in _LISTED_WHOLE

    def own_items(self, body: bytes) -> bytes:
        """A list without the objects of others, of other runs above all."""
        decoded = _decoded(body)
        if not isinstance(decoded, dict) or not isinstance(decoded.get("items"), list):
            return body
        return orjson.dumps({**decoded, "items": [item for item in decoded["items"] if self._is_own(item)]})

    def is_own_event(self, line: bytes) -> bool:
        """Whether a line of a watch is about an object of the run; bookmarks and errors are."""
        decoded = _decoded(line)
        if not isinstance(decoded, dict) or decoded.get("type") not in {"ADDED", "MODIFIED", "DELETED"}:
            return True
        return self._is_own(decoded["object"])

    def _is_own(self, item: Mapping[str, Any]) -> bool:
        metadata = item["metadata"]
        own = metadata.get("namespace") or metadata["name"]
        return own == self.prefix[:-1] or own.startswith(self.prefix) or own in self._lent.values()

    def incoming(self, body: bytes) -> bytes:
        """A response's body or a watch's line, with the names that tests write."""
        plain = body.replace(self.prefix.encode(), b"")
        names = self._shown
        if not names or (decoded := _decoded(plain)) is None:
            return plain
        pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w.-])")
        ending = b"\n" if plain.endswith(b"\n") else b""
        return orjson.dumps(_in_strings(decoded, lambda text: pattern.sub(lambda item: names[item[0]], text))) + ending

    def response(self, response: Response) -> Response:
        return Response(response.code, self.incoming(response.body), response.headers)

    def entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A fleet's entry with the run's label, and a taint that keeps pods of others away."""
        taint = {"key": RUN_LABEL, "value": self.run, "effect": "NoSchedule"}
        return {
            **entry,
            "labels": {**(entry.get("labels") or {}), RUN_LABEL: self.run, SIMULATED_LABEL: self.run},
            "taints": [*(entry.get("taints") or ()), taint],
        }

    # -- parts of a request -------------------------------------------------------------------------------------------

    def _only_reads(self, request: Request, path: str) -> None:
        if request.method not in _READS:
            raise ClusterError(
                f"{request.method} {path}: refused on a cluster that others use: it does not belong to run {self.run}"
            )

    def _query(self, query: str) -> dict[str, str]:
        fields = dict(parse_qsl(query, keep_blank_values=True))
        selector = fields.get("fieldSelector")
        if selector:
            fields["fieldSelector"] = ",".join(self._field(part) for part in selector.split(","))
        return fields

    def _field(self, part: str) -> str:
        key, equals, value = part.partition("=")
        if value in self._lent:
            return f"{key}{equals}{self._lent[value]}"
        return f"{key}{equals}{self.prefix}{value}" if value in self._names else part

    def _body(self, body: Any, method: str) -> Any:
        if not isinstance(body, dict):
            return body
        metadata = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
        name, kind = (metadata or {}).get("name"), body.get("kind")
        outside = kind in _KINDS and name not in KEPT_NAMESPACES
        if outside and isinstance(name, str):
            self._names.add(name)
        values: dict[str, Any] = {key: self.value(value) for key, value in body.items()}
        if name is not None and not outside:
            values["metadata"]["name"] = name
        if method == "POST" and kind is not None and metadata is not None:
            values["metadata"]["labels"] = {**(values["metadata"].get("labels") or {}), RUN_LABEL: self.run}
        if method in {"POST", "PUT"}:
            if kind == "Pod":
                self._own_pod(values["spec"])
            template = (values.get("spec") or {}).get("template")
            if isinstance(template, dict) and isinstance(template.get("spec"), dict):
                self._own_pod(template["spec"])
        return values

    def _own_pod(self, spec: dict[str, Any]) -> None:
        """The run's scheduler, and its nodes alone."""
        spec["schedulerName"] = self.scheduler_name(spec.get("schedulerName") or DEFAULT_SCHEDULER)
        if not spec.get("nodeName"):
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), RUN_LABEL: self.run}
        own = {"key": RUN_LABEL, "operator": "Equal", "value": self.run, "effect": "NoSchedule"}
        of_others = [taint for taints in self._tolerated.values() for taint in taints]
        spec["tolerations"] = [*(spec.get("tolerations") or ()), own, *of_others]

    def value(self, value: Any) -> Any:
        """The value with the prefix before every string that is a name of this run, in JSON inside strings too.

        Names of objects in namespaces stay, though a node of this run may be called the same.
        """
        if isinstance(value, dict):
            stay = _NAMES_IN_NAMESPACE | {"name"} if value.get("namespace") else _NAMES_IN_NAMESPACE
            return {key: item if key in stay else self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            if value in self._lent:
                return self._lent[value]
            if value in self._names or value.partition("/")[0] in self._names:  # also NAMESPACE/NAME, as of gangs
                return self.prefix + value
            if value[:1] in {"{", "["} and (decoded := _decoded(value.encode())) is not None:
                changed = self.value(decoded)
                return orjson.dumps(changed).decode() if changed != decoded else value
        return value


def _with(request: Request, path: str, fields: Mapping[str, str], body: bytes) -> Request:
    query = f"?{urlencode(fields)}" if fields else ""
    return Request(request.method, path + query, body, request.content_type, request.headers)


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _in_strings(value: Any, change: Callable[[str], str]) -> Any:
    """The same JSON with each string value changed; keys stay."""
    if isinstance(value, dict):
        return {key: _in_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_strings(item, change) for item in value]
    return change(value) if isinstance(value, str) else value
