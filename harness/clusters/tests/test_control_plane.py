"""The programs of a real control plane: where they are looked for, and what is said if one is missing."""

from pathlib import Path

import pytest

from seatrial.harness.clusters.backends import ENVTEST, backend_named
from seatrial.harness.clusters.control_plane import ASSETS, PROGRAMS, find_program, free_ports, missing_programs
from seatrial.harness.errors import UsageError


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Empty folders for $KUBEBUILDER_ASSETS and PATH."""
    assets, path = tmp_path / "assets", tmp_path / "path"
    assets.mkdir()
    path.mkdir()
    monkeypatch.setenv(ASSETS, str(assets))
    monkeypatch.setenv("PATH", str(path))
    return assets, path


def put(folder: Path, name: str, mode: int = 0o755) -> Path:
    file = folder / name
    file.write_text("#!/bin/sh\nexit 3\n")
    file.chmod(mode)
    return file


def test_the_folder_goes_before_path(folders: tuple[Path, Path]) -> None:
    assets, path = folders
    on_path = put(path, "etcd")
    assert find_program("etcd") == on_path
    in_assets = put(assets, "etcd", mode=0o644)
    assert find_program("etcd") == on_path, "a file that may not be executed is no program"
    in_assets.chmod(0o755)
    assert find_program("etcd") == in_assets


def test_what_is_missing_is_named_with_a_way_to_get_it(folders: tuple[Path, Path]) -> None:
    assets, path = folders
    put(path, "etcd")
    why = str(missing_programs())
    assert why.startswith(f"kube-apiserver, kube-controller-manager: not found in ${ASSETS} ({assets}) or on PATH")
    assert "setup-envtest" in why
    with pytest.raises(UsageError, match="backend 'envtest' cannot be used here: kube-apiserver"):
        backend_named(ENVTEST)


def test_a_program_that_ends_is_named_with_its_log(folders: tuple[Path, Path]) -> None:
    for name in PROGRAMS:
        put(folders[0], name)
    assert missing_programs() is None
    with pytest.raises(Exception, match="ended with status 3"), backend_named(ENVTEST).start():
        pass


def test_ports_are_different() -> None:
    assert len(set(free_ports(8))) == 8
