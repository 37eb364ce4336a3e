"""Snapshots: what a file has, what a new server makes of it, and files that cannot be used."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver import InProcessTransport, build_server
from seatrial.harness.clusters import snapshot
from seatrial.harness.clusters.quota_webhook import NAME
from seatrial.harness.clusters.snapshot import check, collect, contents, loaded_server, read, write
from seatrial.harness.errors import ApiRefused, ClusterError, UsageError
from seatrial.harness.nodes.fleet import node_manifest
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import APPLY_PATCH, Request, Response

BASE = "/api/v1/namespaces/default"
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}


class World:
    """An API server in virtual time, with a client."""

    def __init__(self, server: Any = None, clock: SimClock | None = None) -> None:
        self.clock = clock or SimClock()
        self.server = server or build_server(self.clock)
        self.call = InProcessTransport(self.server, self.clock).call

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.call(Request("POST", path, orjson.dumps(body)))
        assert answer.ok, answer.body
        self.clock.settle()
        stored: dict[str, Any] = orjson.loads(answer.body)
        return stored

    def objects(self, **options: Any) -> dict[tuple[str, str, str], dict[str, Any]]:
        """What a snapshot has, by kind, namespace and name."""
        objects = map(orjson.loads, collect(self.call, **options).lines)
        return {
            (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]): body for body in objects
        }


@pytest.fixture
def world() -> World:
    """A server with a node, an owner with its dependent, a bound pod, a Secret and an applied object."""
    world = World()
    world.post("/api/v1/nodes", node_manifest({"name": "n", "cpu": 4}))
    world.post(f"{BASE}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    owner = world.post(f"{BASE}/configmaps", {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    world.post(f"{BASE}/configmaps", {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    bound = world.post(f"{BASE}/pods", pod("p").request(cpu=1).node_name("n").namespace("default").manifest)
    status = {"metadata": {"uid": bound["metadata"]["uid"]}, "status": {"phase": "Running"}}
    patch = Request("PATCH", f"{BASE}/pods/p/status", orjson.dumps(status), "application/merge-patch+json")
    assert world.call(patch).ok
    applied = Request("PATCH", f"{BASE}/configmaps/c?fieldManager=me", orjson.dumps(CONFIG), APPLY_PATCH)
    assert world.call(applied).ok
    world.clock.settle()
    return world


def again(world: World, folder: Path) -> World:
    """A new server with the objects of the world."""
    write(folder / "s", collect(world.call), world.clock)
    clock = SimClock()
    server, left_out = loaded_server(folder / "s", clock)
    assert not left_out
    clock.settle()
    return World(server, clock)


def test_a_new_server_has_the_same_objects(world: World, tmp_path: Path) -> None:
    """UIDs, owners, status and field managers too; other are what identifies a server, and all resourceVersions."""
    before, after = world.objects(), again(world, tmp_path).objects()
    assert before.keys() == after.keys()
    different = set()
    for key, body in before.items():
        del body["metadata"]["resourceVersion"], after[key]["metadata"]["resourceVersion"]
        if body != after[key]:
            different.add(key[0] if key[0] == "CustomResourceDefinition" else key[2])
    assert different <= {"kube-system", "kubernetes", "kube-root-ca.crt", "extension-apiserver-authentication"}
    assert after["Pod", "default", "p"]["status"]["phase"] == "Running"
    assert after["Pod", "default", "p"]["spec"]["nodeName"] == "n"
    assert [entry["manager"] for entry in after["ConfigMap", "default", "c"]["metadata"]["managedFields"]] == ["me"]


def test_the_owner_of_a_loaded_object_is_known(world: World, tmp_path: Path) -> None:
    loaded = again(world, tmp_path)
    loaded.clock.advance(120)
    assert ("ConfigMap", "default", "owned") in loaded.objects()

    assert loaded.call(Request("DELETE", f"{BASE}/configmaps/owner")).ok
    loaded.clock.settle()
    assert ("ConfigMap", "default", "owned") not in loaded.objects()


def test_an_object_that_every_server_has_owns_too(world: World, tmp_path: Path) -> None:
    """The new server made one of the same name and another UID."""
    account = orjson.loads(world.call(Request("GET", f"{BASE}/serviceaccounts/default")).body)["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": account}
    world.post(f"{BASE}/configmaps", {"metadata": {"name": "of-the-account", "ownerReferences": [reference]}})
    loaded = again(world, tmp_path)
    assert ("ConfigMap", "default", "of-the-account") in loaded.objects()


def test_the_identity_of_a_cluster_is_not_loaded(world: World, tmp_path: Path) -> None:
    key = ("Namespace", "", "kube-system")
    assert world.objects()[key]["metadata"]["uid"] != again(world, tmp_path).objects()[key]["metadata"]["uid"]


def test_new_objects_have_new_uids(world: World, tmp_path: Path) -> None:
    """A server with the same seed draws the same UIDs again; those of loaded objects are taken."""
    loaded = again(world, tmp_path)
    taken = {body["metadata"]["uid"] for body in loaded.objects().values()}
    for number in range(20):
        assert loaded.post(f"{BASE}/configmaps", {"metadata": {"name": f"x{number}"}})["metadata"]["uid"] not in taken


def test_another_clusters_secrets_and_servers_are_left_out(world: World) -> None:
    ours, theirs = world.objects(), world.objects(foreign=True, secrets=False)
    assert ("Secret", "default", "s") in ours
    assert {kind for kind, _, _ in ours.keys() - theirs.keys()} == {
        "APIService",
        "FlowSchema",
        "PriorityLevelConfiguration",
        "Secret",
    }
    assert ("Pod", "default", "p") in theirs


def test_what_a_foreign_account_may_not_read_is_told(world: World) -> None:
    def call(request: Request) -> Response:
        refused = "/rolebindings?" in request.path
        return Response(403, b'{"reason": "Forbidden"}') if refused else world.call(request)

    snapshot = collect(call, foreign=True)
    assert snapshot.unread == {"rolebindings (rbac.authorization.k8s.io/v1)": "403 Forbidden"}
    assert "RoleBinding" not in snapshot.kinds
    with pytest.raises(ApiRefused, match="rolebindings"):
        collect(call)


def test_all_lists_are_of_one_revision(world: World) -> None:
    """An object that comes while the lists are read is not in the snapshot, and one that goes is."""

    def call(request: Request) -> Response:
        if "/api/v1/pods?" in request.path:
            world.post(f"{BASE}/services", {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 1}]}})
            assert world.call(Request("DELETE", f"{BASE}/secrets/s")).ok
        return world.call(request)

    kinds = collect(call).kinds
    assert (kinds["Service"], kinds["Secret"]) == (1, 1)


def test_a_forgotten_revision_is_read_again(world: World) -> None:
    answers: Iterator[int] = iter((410, 200, 410, 410, 410))

    def call(request: Request) -> Response:
        gone = "/pods?" in request.path and next(answers) == 410
        return Response(410, b'{"reason": "Expired"}') if gone else world.call(request)

    assert collect(call).kinds["Pod"] == 1
    with pytest.raises(ClusterError, match="changes faster than its objects are read; try again"):
        collect(call)


def test_long_lists_are_read_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PAGE", 2)
    for number in range(5):
        world.post(f"{BASE}/configmaps", {"metadata": {"name": f"x{number}"}})
    assert {f"x{number}" for number in range(5)} < {name for kind, _, name in world.objects() if kind == "ConfigMap"}


def test_the_file_is_private_and_its_header_counts(world: World, tmp_path: Path) -> None:
    write(tmp_path / "s", collect(world.call), world.clock)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    header = orjson.loads(gzip.decompress((tmp_path / "s").read_bytes()).split(b"\n", 1)[0])
    assert header["snapshot"] == 1
    assert header["kinds"]["Pod"] == 1
    assert len(read(tmp_path / "s")) == header["objects"] == sum(header["kinds"].values())


def test_contents_are_what_users_made(world: World) -> None:
    world.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"metadata": {"name": NAME}})
    assert contents(collect(world.call)) == {"Node": 1, "Pod": 1, "Secret": 1, "ConfigMap": 3}
    assert not contents(collect(World().call))


def written(path: Path, *objects: Any, header: Any = None) -> Path:
    """A file with these objects; of the header what the checks read."""
    lines = [header if header is not None else {"snapshot": 1, "objects": len(objects)}, *objects]
    path.write_bytes(gzip.compress(b"\n".join(orjson.dumps(line) for line in lines) + b"\n"))
    return path


def config(name: str = "a", uid: str = "1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": uid, **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        pytest.param([[1]], "line 2: expected an object", id="a-list"),
        pytest.param([{"kind": "Pod"}], "line 2: apiVersion: expected a text, found none", id="no-version"),
        pytest.param([config(uid="")], "line 2: uid: expected a text, found ''", id="no-uid"),
        pytest.param(
            [config(), config("b")], "line 3: metadata.uid: expected one of its own, found .* 1", id="uid-twice"
        ),
        pytest.param(
            [config(namespace="x")], "line 2: .*'a': expected a namespace of the snapshot, found 'x'", id="where"
        ),
        pytest.param([config(namespace="")], "line 2: .*'a': expected a namespace, found none", id="no-namespace"),
        pytest.param([config("a/b")], "line 2: metadata.name 'a/b': may not contain '/'", id="a-path"),
        pytest.param([{**config(), "data": 1}], "line 2: ConfigMap .*cannot unmarshal number into", id="a-type"),
        pytest.param([config(labels={"a": "?"})], "line 2: .*a valid label must be", id="a-label"),
    ],
)
def test_a_mistake_names_its_line(objects: list[Any], why: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s", *objects)
    with pytest.raises(UsageError, match=why):
        check(path)


def test_a_custom_object_has_the_schema_of_its_definition(tmp_path: Path) -> None:
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": "n", "uid": "1"}}
    assert not check(written(tmp_path / "s", {**body, "spec": {"devices": []}}))
    with pytest.raises(UsageError, match=r"line 2: .*spec.devices"):
        check(written(tmp_path / "s", {**body, "spec": {"devices": 7}}))


def test_definitions_and_namespaces_may_come_last(tmp_path: Path) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.org", "uid": "1"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    boat = {"apiVersion": "example.org/v1", "kind": "Boat", "metadata": {"name": "b", "namespace": "sea", "uid": "2"}}
    sea = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sea", "uid": "3"}}
    assert not check(written(tmp_path / "s", boat, sea, definition))
    with pytest.raises(UsageError, match=r"line 2: .*metadata.name: Invalid value: .boats.example.com."):
        check(written(tmp_path / "s", {**definition, "metadata": {"name": "boats.example.com", "uid": "1"}}))


def test_kinds_that_are_not_served_are_left_out(tmp_path: Path) -> None:
    boat = {"apiVersion": "example.org/v1", "kind": "Boat", "metadata": {"name": "b", "uid": "2"}}
    assert check(written(tmp_path / "s", boat, config())) == {"Boat (example.org/v1)": 1}


def test_a_node_of_a_real_cluster_becomes_one_of_kwok(tmp_path: Path) -> None:
    real = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "r", "uid": "1"}}
    simulated = {**node_manifest({"name": "s"}), "apiVersion": "v1", "kind": "Node"}
    simulated["metadata"]["uid"] = "2"
    server, _ = loaded_server(written(tmp_path / "s", real, simulated), SimClock())
    nodes = {
        item.key[1]: item.obj["metadata"].get("annotations") for item in server.store.collection(("", "nodes")).each()
    }
    assert nodes["r"] == {"kwok.x-k8s.io/node": "fake"}
    assert "kwok.x-k8s.io/node" not in nodes["s"]


def test_files_that_are_no_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(UsageError, match=r"s: expected a file of `seatrial snapshot save`: No such file"):
        read(path)
    path.write_text("nodes:")
    with pytest.raises(UsageError, match=r"s: expected a file of `seatrial snapshot save`: Not a gzipped file"):
        read(path)
    whole = written(path, *(config(str(number)) for number in range(100))).read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(UsageError, match=r"after line \d+: expected more, found the end or damage"):
        read(path)
    with pytest.raises(UsageError, match=r"line 1: expected the header of a snapshot of format 1, found '\[1,2\]'"):
        read(written(path, header=[1, 2]))
    with pytest.raises(UsageError, match="expected 3 objects by its header, found 1"):
        read(written(path, config(), header={"snapshot": 1, "objects": 3}))


def test_a_long_line_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_LINE", 300)
    with pytest.raises(UsageError, match="line 2: expected at most 300 bytes, found more"):
        read(written(tmp_path / "s", config("a" * 400)))
