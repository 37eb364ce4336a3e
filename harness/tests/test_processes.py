"""Child processes: what a program that was started says first."""

import subprocess

import pytest

from seatrial.harness.processes import first_answer, has_ended, own_identity, start_child, stop


@pytest.mark.parametrize(
    ("command", "within", "answer"),
    [
        pytest.param(["echo", '{"ready": true}'], 60.0, {"ready": True}, id="an-answer"),
        pytest.param(["true"], 60.0, {}, id="it-ends"),
        pytest.param(
            ["sleep", "600"], 0.0, {"error": "the process runs, and did not answer within 0 s"}, id="it-takes-long"
        ),
    ],
)
def test_the_first_answer_of_a_program(command: list[str], within: float, answer: dict[str, object]) -> None:
    process = start_child(command, stdout=subprocess.PIPE)
    try:
        assert first_answer(process, within=within) == answer
    finally:
        stop(process)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("text", ["", "1", "²-1", "1-²", "-1-1", "a-b", "9" * 5000 + "-1"])
def test_a_text_that_names_no_process_has_not_ended(text: str) -> None:
    """Names of folders, groups and containers that others made are left alone."""
    assert not has_ended(text)
    assert not has_ended(own_identity())
    assert has_ended(f"{own_identity()}0")
