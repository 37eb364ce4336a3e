"""Child processes: what a program that was started says first."""

import subprocess

import pytest

from seatrial.harness.processes import first_answer, start_child, stop


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
