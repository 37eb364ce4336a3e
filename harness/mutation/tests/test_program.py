"""A program of ours that a suite starts runs with the campaign's mutant, and without a campaign as it is."""

import os
import subprocess
import sys

import pytest

from seatrial.harness.mutation.catalogue import load
from seatrial.harness.processes import MUTANT, program


def test_without_a_campaign_the_program_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MUTANT, raising=False)
    assert program("seatrial.scheduler.webhooks") == [sys.executable, "-m", "seatrial.scheduler.webhooks"]


def test_the_program_runs_with_the_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ID that the catalogue lacks ends the process, so the ID has arrived; a known one leaves the program alone."""
    known = next(mutant.id for mutant in load() if mutant.area == "webhooks")
    monkeypatch.setenv(MUTANT, known)
    command = [*program("seatrial.scheduler.webhooks"), "--help"]
    ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--cert-dir" in ran.stdout
    ran = subprocess.run(command, env={**os.environ, MUTANT: "XXX-99"}, capture_output=True, text=True, check=False)
    assert "no mutant of the catalogue has this ID" in ran.stderr
    assert ran.returncode != 0
