"""Hooks: commands as words, a time limit, retries, and a machine that is taken out of service."""

import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.lab.errors import HookFailed, LabError, LeaseLost
from seatrial.harness.lab.lab import Lab
from seatrial.harness.lab.ledger import PlaceRequest
from seatrial.harness.lab.stores import FileStore
from seatrial.harness.lab.tests.inventories import inventory

WHOLE = PlaceRequest("h100", whole=True)
COUNT = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); n = len(p.read_text()) if p.exists() else 0; "


def lab(folder: Path, prepare: tuple[str, ...] = (), **hooks: Any) -> Lab:
    machines = [
        {
            "name": "big",
            "cards": [{"name": "0", "model": "h100"}, {"name": "1", "model": "h100"}],
            "hooks": hooks,
            "prepare": list(prepare),
        }
    ]
    result = inventory(folder, machines=machines)
    return Lab(result, FileStore(folder / "ledger.json", "shelf"), holder="me of a job")


def python(code: str, *words: object, **more: object) -> dict[str, object]:
    return {"command": [sys.executable, "-c", code, *map(str, words)], **more}


def test_a_hook_gets_its_words_as_they_are(tmp_path: Path) -> None:
    """No shell sees the holder's name; variables say what is held."""
    show = "import os, sys; print(sys.argv[1:], os.environ['SEATRIAL_LAB_CARDS'], os.environ['SEATRIAL_LAB_TOKEN'])"
    opened = lab(tmp_path, cycle=python(show, "{machine}", "{holder}", "$HOME", "t{token}"))
    with opened.acquire(WHOLE, wait=0) as place:
        assert place.run_hook("cycle") == "['big', 'me of a job', '$HOME', 't1'] 0,1 1\n"


@pytest.mark.parametrize(
    "holder", ["$(touch x)", "a; b", "a'", 'a"', "a #b", "-a", "a -b", "a\n", "\x1b[2J", "a`b`", "a|b", "é", "x" * 201]
)
def test_a_holder_whose_name_a_shell_would_read_is_refused(tmp_path: Path, holder: str) -> None:
    """A hook may be written as `[sh, -c, "… {holder}"]`."""
    with pytest.raises(LabError, match="give another name with --holder"):
        Lab(inventory(tmp_path), FileStore(tmp_path / "ledger.json", "shelf"), holder=holder)


def test_the_default_holder_is_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI_PROJECT_PATH", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "me;é")
    assert Lab(inventory(tmp_path), FileStore(tmp_path / "ledger.json", "shelf")).holder.startswith("me--@")
    monkeypatch.setenv("CI_PROJECT_PATH", "group/sub.group/project")
    monkeypatch.setenv("CI_JOB_ID", "17")
    lab = Lab(inventory(tmp_path), FileStore(tmp_path / "ledger.json", "shelf"))
    assert lab.holder == "gitlab:group/sub.group/project#17"


def test_a_machine_is_prepared_before_it_is_handed_out(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    opened = lab(tmp_path, ("on",), on=python("import sys, pathlib; pathlib.Path(sys.argv[1]).touch()", mark))
    with opened.acquire(PlaceRequest("h100"), wait=0):
        assert not mark.exists()  # others may use the other card
    with opened.acquire(WHOLE, wait=0):
        assert mark.exists()
    mark.unlink()
    opened.acquire_for(WHOLE, 60, wait=0)
    assert mark.exists()


def test_a_hook_that_fails_is_tried_again(tmp_path: Path) -> None:
    flaky = python(COUNT + "p.write_text('x' * (n + 1)); sys.exit(n < 2)", tmp_path / "tries", retries=2)
    with lab(tmp_path, ("on",), on=flaky).acquire(WHOLE, wait=0):
        assert (tmp_path / "tries").read_text() == "xxx"


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (python("print('no link'); raise SystemExit(3)"), "ended with status 3; its output: no link"),
        (python("import time; time.sleep(600)", within=0.2), r"did not end within 0\.2 s"),
        ({"command": ["/no/such/program"]}, "/no/such/program: cannot be started: No such file"),
    ],
)
def test_a_machine_whose_preparation_failed_is_out_of_service(
    tmp_path: Path, hook: dict[str, object], words: str
) -> None:
    opened = lab(tmp_path, ("on",), on=hook)
    for acquire in (lambda: opened.acquire(WHOLE, wait=0), lambda: opened.acquire_for(WHOLE, 60, wait=0)):
        opened.set_service("big", "")
        with pytest.raises(HookFailed, match=rf"hook 'on' of machine 'big': .*{words}.*seatrial lab restore big"):
            acquire()
        ledger = opened.snapshot().ledger
        assert ledger.leases == ()
        assert list(ledger.out_of_service) == ["big"]
    with pytest.raises(LabError, match="no place for 1 card h100"):
        opened.acquire(PlaceRequest("h100"), wait=0)
    opened.set_service("big", "")
    opened.acquire(PlaceRequest("h100"), wait=0).give_back()


def test_a_hook_is_refused_for_a_part_of_a_machine_and_without_a_lease(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    opened = lab(tmp_path, cycle=python("import sys, pathlib; pathlib.Path(sys.argv[1]).touch()", mark))
    with opened.acquire(PlaceRequest("h100"), wait=0) as place:
        with pytest.raises(LabError, match=r"concerns all its devices; ask for the whole machine, found big/0"):
            place.run_hook("cycle")
        with pytest.raises(LabError, match=r"expected one of its hooks \(cycle\), found 'off'"):
            place.run_hook("off")
    place = opened.acquire(WHOLE, wait=0)
    opened.release(place.token)
    with pytest.raises(LeaseLost):
        place.run_hook("cycle")
    place.give_back()
    assert not mark.exists()
