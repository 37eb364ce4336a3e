"""Snapshots: the objects of a cluster in one file, and a new embedded API server with them.

A file is gzip-compressed JSON lines: a header with version, time and the number of objects of each kind, then the
objects with UID, status and `managedFields`. Events are left out: they expire within an hour.

As `kwokctl snapshot` (https://kwok.sigs.k8s.io/docs/user/kwokctl-snapshot/) it holds objects, and not what etcd has on
disk; but UIDs are kept, so that owner references need no new ones.
"""

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

import seatrial
from seatrial.harness.apiserver import LoadError, build_server, load_objects, publish_endpoint
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.quota_webhook import NAME
from seatrial.harness.errors import ApiRefused, ClusterError, UsageError
from seatrial.harness.nodes.kwok import FAKE, FAKE_ANNOTATION, is_simulated
from seatrial.scheduler.api.clock import Clock, SimClock
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.transport import Request, Response

Object = dict[str, Any]
Call = Callable[[Request], Response]

FORMAT = 1
MAX_LINE = 4 << 20  # bytes; an object of the API has at most 1.5 MiB, and its managedFields
PAGE = 500  # objects of one answer
TRIES = 3  # the revision that all lists have in common may be forgotten meanwhile
GONE = 410
_EVENTS = frozenset({("v1", "events"), ("events.k8s.io/v1", "events")})
_OF_ITS_SERVERS = frozenset(  # groups of another cluster's own programs, which do not run here
    {
        "admissionregistration.k8s.io",
        "apiregistration.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "flowcontrol.apiserver.k8s.io",
    }
)
_SYSTEM = ("kube-", "koordinator-system")  # beginnings of namespaces whose objects programs make


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a cluster, one line of JSON each, and the resources that could not be read, with the reason."""

    lines: list[bytes]
    kinds: Counter[str]
    unread: dict[str, str]


def collect(call: Call, *, foreign: bool = False, secrets: bool = True) -> Snapshot:
    """Read all objects at one revision.

    `foreign`: the cluster is not ours. What belongs to its own servers is left out, and what the account may not read.

    Raises:
        ApiRefused: a list was refused.
        ClusterError: no answer came, or the cluster changes faster than it is read.
    """
    for _ in range(TRIES):
        try:
            return _collected(call, foreign=foreign, secrets=secrets)
        except ApiRefused as error:
            if error.code != GONE:
                raise
    raise ClusterError("snapshot: the cluster changes faster than its objects are read; try again")


def _collected(call: Call, *, foreign: bool, secrets: bool) -> Snapshot:
    revision = _get(call, "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"]
    lines: list[bytes] = []
    kinds: Counter[str] = Counter()
    unread: dict[str, str] = {}
    for version, plural in _resources(call):
        if (version, plural) in _EVENTS or (plural == "secrets" and not secrets):
            continue
        if foreign and version.rpartition("/")[0] in _OF_ITS_SERVERS:
            continue
        try:
            for item in _listed(call, version, plural, revision):
                kinds[item["kind"]] += 1
                lines.append(orjson.dumps(item))
        except ApiRefused as error:
            if not foreign or error.code == GONE or plural in {"nodes", "pods"}:
                raise
            unread[f"{plural} ({version})"] = f"{error.code} {error.reason}".strip()
    return Snapshot(lines, kinds, unread)


def _get(call: Call, path: str) -> Any:
    request = Request("GET", path, headers={"user-agent": f"seatrial/{seatrial.__version__}"})  # named: managedFields
    return orjson.loads(accepted(call(request), f"snapshot: read {path.partition('?')[0]}").body)


def _resources(call: Call) -> Iterator[tuple[str, str]]:
    """The kinds that can be listed and created: apiVersion and plural, in the group's first version that has it."""
    groups = [["v1"]]
    for group in _get(call, "/apis")["groups"]:
        preferred = group["preferredVersion"]["groupVersion"]
        groups.append([preferred, *(row["groupVersion"] for row in group["versions"])])
    for versions in groups:
        seen: set[str] = set()
        for version in dict.fromkeys(versions):
            for row in _get(call, f"/{'apis' if '/' in version else 'api'}/{version}")["resources"]:
                if "/" not in row["name"] and row["name"] not in seen and {"list", "create"} <= set(row["verbs"]):
                    seen.add(row["name"])
                    yield version, row["name"]


def _listed(call: Call, version: str, plural: str, revision: str) -> Iterator[Object]:
    where = f"/{'apis' if '/' in version else 'api'}/{version}/{plural}?limit={PAGE}"
    page = _get(call, f"{where}&resourceVersion={revision}&resourceVersionMatch=Exact")
    while True:
        kind = page["kind"].removesuffix("List")
        for item in page["items"] or ():
            yield {"apiVersion": version, "kind": kind, **item}
        token = page["metadata"].get("continue")
        if not token:
            return
        page = _get(call, f"{where}&continue={quote(token, safe='')}")


def write(path: Path, snapshot: Snapshot, clock: Clock) -> None:
    """Write the file with mode 0600, in one step."""
    header = {
        "seatrial": seatrial.__version__,
        "snapshot": FORMAT,
        "time": clock.timestamp(),
        "objects": len(snapshot.lines),
        "kinds": dict(sorted(snapshot.kinds.items())),
    }
    write_private(path, gzip.compress(b"\n".join([orjson.dumps(header), *snapshot.lines, b""]), mtime=0))


def read(path: Path) -> list[bytes]:
    """The lines with the objects of a snapshot.

    Raises:
        UsageError: there is no such file, it is not a snapshot, or a part of it is missing.
    """
    lines: list[bytes] = []
    try:
        with gzip.open(path, "rb") as source:
            while line := source.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE:
                    raise UsageError(f"{path}, line {len(lines) + 1}: expected at most {MAX_LINE} bytes, found more")
                lines.append(line.rstrip(b"\n"))
    except OSError as error:  # also BadGzipFile
        raise UsageError(f"{path}: expected a file of `seatrial snapshot save`: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}, after line {len(lines)}: expected more, found the end or damage: {error}") from error
    try:
        header = orjson.loads(lines[0]) if lines else None
    except orjson.JSONDecodeError:
        header = None
    if not isinstance(header, dict) or header.get("snapshot") != FORMAT:
        raise UsageError(
            f"{path}, line 1: expected the header of a snapshot of format {FORMAT}, found"
            f" {(lines[0] if lines else b'none')[:60].decode(errors='replace')!r}"
        )
    if len(lines) - 1 != header.get("objects"):
        raise UsageError(f"{path}: expected {header.get('objects')} objects by its header, found {len(lines) - 1}")
    return lines[1:]


def loaded_server(path: Path, clock: Clock, *, seed: int = 0, **options: Any) -> tuple[Any, Counter[str]]:
    """A new API server with the objects of a snapshot, and the number of objects of each kind that it does not serve.

    New UIDs depend on the file, too: with the same seed as before they would be those of the loaded objects.

    Raises:
        UsageError: the file cannot be used.
    """
    lines = read(path)
    digest = hashlib.sha256(b"%d\n" % seed)
    for line in lines:
        digest.update(line)
    server = build_server(clock, seed=int.from_bytes(digest.digest()[:8]), **options)
    try:
        return server, load_objects(server, lines, _is_loaded)
    except LoadError as error:
        raise UsageError(f"{path}, line {error.number + 2}: {error}") from error


def check(path: Path) -> Counter[str]:
    """Check a whole file by loading it, in linear time; what the API server will leave out, as `loaded_server`.

    Raises:
        UsageError: it cannot be used.
    """
    return loaded_server(path, SimClock())[1]


def _is_loaded(body: Object) -> bool:
    """Whether an object is loaded; a node of a real cluster becomes one in KWOK's format, so that it runs pods."""
    metadata = body["metadata"]
    if body["kind"] == "Node":
        annotations = metadata.get("annotations") or {}
        if not is_simulated(metadata.get("labels") or {}, annotations):
            metadata["annotations"] = {**annotations, FAKE_ANNOTATION: FAKE}
    return not _is_webhook(body)


def _is_webhook(body: Object) -> bool:
    """Whether it registers the webhooks of an embedded cluster, which each has of its own."""
    return body["kind"].endswith("WebhookConfiguration") and body["metadata"].get("name") == NAME


def contents(snapshot: Snapshot) -> Counter[str]:
    """The number of objects of each kind that users made, without those that servers and programs make."""
    clock = SimClock()
    fresh = build_server(clock)
    publish_endpoint(fresh.store, "127.0.0.1", 1)
    clock.settle()
    born = {(item.obj["kind"], *item.key) for _, collection in fresh.store for item in collection.each()}
    objects = [orjson.loads(line) for line in snapshot.lines]
    nodes = {body["metadata"]["name"] for body in objects if body["kind"] == "Node"}
    kinds: Counter[str] = Counter()
    for body in objects:
        key = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
        of_a_node = not key[0] and key[1] in nodes and body["kind"] != "Node"  # as Device
        if (
            (body["kind"], *key) not in born
            and not _is_webhook(body)
            and not key[0].startswith(_SYSTEM)
            and not of_a_node
        ):
            kinds[body["kind"]] += 1
    return kinds
