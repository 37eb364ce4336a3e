"""A scheduler that is not ready in time."""

from pathlib import Path

import pytest

from seatrial.harness.errors import SubjectError
from seatrial.harness.subject import process
from seatrial.harness.subject.process import READY_LINE, ProcessSubject
from seatrial.harness.subject.protocol import OURS


def test_a_start_in_vain_shows_the_log_and_another_one_may_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that says that it is ready if a file exists, which is created between its starts."""
    log, ready = tmp_path / "log", tmp_path / "ready"
    ready.touch()
    command = ["/bin/sh", "-c", f'test -e {ready} && echo "{READY_LINE}"; exec sleep 100']
    with ProcessSubject(OURS, command, log_file=log) as subject:
        ready.unlink()
        subject.kill()
        log.write_text("")
        monkeypatch.setattr(process, "START_WITHIN", 0.0)
        monkeypatch.setattr(ProcessSubject, "_launch", _writing(ProcessSubject._launch, log, "the cache is not filled"))
        with pytest.raises(SubjectError, match=r"not ready within 0 s; its log:\nthe cache is not filled"):
            subject.start_again()

        ready.touch()
        monkeypatch.undo()
        subject.ensure_started()

        subject.check()


def test_the_log_of_an_earlier_process_in_the_file_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one was ready; this one never is."""
    log = tmp_path / "log"
    log.write_text(f"earlier\n{READY_LINE}\n")
    monkeypatch.setattr(process, "START_WITHIN", 0.0)
    subject = ProcessSubject(OURS, ["/bin/sh", "-c", "exec sleep 100"], log_file=log)
    with pytest.raises(SubjectError, match="was not ready"):
        subject.__enter__()
    assert "earlier" not in subject.log()


def test_a_fault_in_the_log_of_our_scheduler_is_told_once(tmp_path: Path) -> None:
    """The process goes on after an exception; its case must show it."""
    log = tmp_path / "log"
    line = "2026-01-01 00:00:00,000 E seatrial.scheduler.api.faults fault id=1 work=Core.decide nth=1"
    with ProcessSubject(OURS, ["/bin/sh", "-c", f'echo "{READY_LINE}"; exec sleep 100'], log_file=log) as subject:
        subject.check()
        with log.open("a") as file:
            file.write(f"{line}\n")
        with pytest.raises(SubjectError, match=r"fault id=1 work=Core\.decide"):
            subject.check()
        subject.check()


def _writing(launch, log: Path, line: str):  # type: ignore[no-untyped-def]
    """`launch`, after which the log has a line more."""

    def launched(self: ProcessSubject, log_file: Path) -> None:
        launch(self, log_file)
        with log.open("a") as file:
            file.write(line)

    return launched
