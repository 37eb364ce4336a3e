"""Private files: their mode, symbolic links, and folders that killed processes left."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.scheduler.api.private_files import PREFIX, private_folder, remove_abandoned, write_private

HOLDER = """
import signal, sys
from seatrial.scheduler.api.private_files import private_folder
with private_folder() as folder:
    (folder / "key").write_text("secret")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder for this test and its child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holder() -> tuple["subprocess.Popen[str]", Path]:
    """A process with a private folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_private_and_removed_on_exit() -> None:
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "deep").mkdir()
        (folder / "deep" / "key").write_text("secret")
    assert not folder.exists()


def test_a_folder_is_removed_after_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), private_folder() as folder:
        raise KeyboardInterrupt
    assert not folder.exists()


def test_a_context_that_is_never_left_is_removed_at_the_end_of_the_process() -> None:
    program = (
        "from seatrial.scheduler.api.private_files import private_folder; c = private_folder(); print(c.__enter__())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert PREFIX in done.stdout
    assert not Path(done.stdout.strip()).exists()


def test_ctrl_c_removes_the_folder() -> None:
    process, folder = holder()
    with process:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert PREFIX in folder.name
    assert not folder.exists()


def test_the_next_start_removes_what_a_killed_process_left() -> None:
    process, folder = holder()
    with process:
        assert remove_abandoned() == 0, "its process lives"
        assert (folder / "key").exists()
        process.kill()
        process.communicate()
    assert (folder / "key").exists()
    later, other = holder()
    with later:
        assert not folder.exists()
        assert other.exists()
        later.communicate()
    assert not other.exists()


def test_links_and_files_with_the_prefix_are_left_in_place(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file").touch()
    assert remove_abandoned() == 0
    assert sorted(path.name for path in temporary.iterdir()) == ["elsewhere", f"{PREFIX}file", f"{PREFIX}link"]


def test_a_file_is_readable_by_its_owner_only_and_replaced_in_one_step(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = tmp_path / "deep" / "kubeconfig"
        write_private(path, b"first")
        write_private(path, b"second")
    finally:
        os.umask(old)
    assert path.read_bytes() == b"second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "kubeconfig"
    target.write_text("untouched")
    path.symlink_to(target)
    write_private(path, b"secret")
    assert target.read_text() == "untouched"
    assert not path.is_symlink()
    assert path.read_bytes() == b"secret"
