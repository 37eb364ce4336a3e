"""Volumes as folders: what is in them, with which modes, and what is refused."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.runtimes.tests.rig import work
from seatrial.harness.nodes.runtimes.volumes import CannotMount, mounts, prepare

OBJECTS = {
    ("configmap", "settings"): {"colour": b"blue", "size": b"9"},
    ("secret", "login"): {"password": b"\x00open"},
    ("token", "vault/600"): {"token": b"signed"},
}


def with_volume(volume: dict[str, Any], *mounted: dict[str, Any]) -> Work:
    """A pod with a volume `v` and its mounts."""
    labels = {"team": "a", "tier": "b"}
    result = work(
        "true",
        pod={"volumes": [{"name": "v", **volume}]},
        volumeMounts=list(mounted),
        resources={"limits": {"cpu": "1500m", "memory": "64Mi"}},
    )
    result.objects = OBJECTS
    replace = msgspec.structs.replace
    result.pod = replace(result.pod, metadata=replace(result.pod.metadata, labels=labels))
    return result


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("volume", "results"),
    [
        pytest.param({"emptyDir": {}}, {}, id="empty"),
        pytest.param({"configMap": {"name": "settings"}}, {"colour": b"blue", "size": b"9"}, id="a-whole-configmap"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "size", "path": "a/b"}]}},
            {"a/b": b"9"},
            id="some-keys-under-other-names",
        ),
        pytest.param({"configMap": {"name": "none", "optional": True}}, {}, id="an-optional-one-that-is-not-there"),
        pytest.param({"secret": {"secretName": "login"}}, {"password": b"\x00open"}, id="a-secret"),
        pytest.param(
            {
                "downwardAPI": {
                    "items": [
                        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
                    ]
                }
            },
            {"name": b"one", "labels": b'team="a"\ntier="b"', "cpu": b"2"},
            id="the-pod-s-own-fields",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "settings", "items": [{"key": "colour", "path": "colour"}]}},
                        {"secret": {"name": "login"}},
                        {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 600, "path": "token"}},
                    ]
                }
            },
            {"colour": b"blue", "password": b"\x00open", "token": b"signed"},
            id="several-in-one",
        ),
    ],
)
def test_what_is_in_a_volume(tmp_path: Path, volume: dict[str, Any], results: dict[str, bytes]) -> None:
    prepare(with_volume(volume), tmp_path)
    assert files(tmp_path / "v") == results


def test_modes(tmp_path: Path) -> None:
    items = [{"key": "colour", "path": "own", "mode": 0o440}, {"key": "size", "path": "default"}]
    prepare(with_volume({"configMap": {"name": "settings", "items": items, "defaultMode": 0o600}}), tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "v").iterdir()}
    assert modes == {"own": 0o440, "default": 0o600}


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A container that is started again finds what the first run left."""
    one = with_volume({"emptyDir": {}})
    prepare(one, tmp_path)
    (tmp_path / "v" / "note").write_text("kept")
    prepare(one, tmp_path)
    assert files(tmp_path / "v") == {"note": b"kept"}


@pytest.mark.parametrize(
    ("volume", "mounted", "saying"),
    [
        pytest.param({"nfs": {}}, {}, "volume 'v': expected emptyDir, hostPath", id="a-kind-that-needs-a-driver"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "shape", "path": "shape"}]}},
            {},
            "configmap 'settings': expected a key 'shape', found colour, size",
            id="a-key-that-is-not-there",
        ),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "size", "path": "../size"}]}},
            {},
            "expected a path inside it, found '../size'",
            id="a-file-that-leads-out",
        ),
        pytest.param({"hostPath": {"path": "/nowhere", "type": "Directory"}}, {}, "found nothing", id="no-such-folder"),
        pytest.param({"emptyDir": {}}, {"name": "w"}, "expected a volume 'w' in the pod", id="a-mount-of-nothing"),
        pytest.param({"emptyDir": {}}, {"name": "v", "subPath": "../.."}, "subPath", id="a-mount-that-leads-out"),
    ],
)
def test_what_cannot_be_had_says_why(
    tmp_path: Path, volume: dict[str, Any], mounted: dict[str, Any], saying: str
) -> None:
    one = with_volume(volume, *([{"mountPath": "/at", **mounted}] if mounted else []))

    def both() -> None:
        prepare(one, tmp_path)
        mounts(one, one.pod.spec.containers[0], tmp_path)

    with pytest.raises(CannotMount) as refused:
        both()
    assert saying in str(refused.value)


def test_where_mounts_come_from(tmp_path: Path) -> None:
    one = with_volume(
        {"hostPath": {"path": str(tmp_path / "host"), "type": "DirectoryOrCreate"}},
        {"name": "v", "mountPath": "/z", "readOnly": True},
        {"name": "v", "mountPath": "/a", "subPath": "in"},
    )
    prepare(one, tmp_path / "pod")
    results = mounts(one, one.pod.spec.containers[0], tmp_path / "pod")
    assert [(each.target, each.source, each.read_only) for each in results] == [
        ("/a", tmp_path / "host" / "in", False),
        ("/z", tmp_path / "host", True),
    ]
