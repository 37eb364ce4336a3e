"""Fleet files that would end the process or fill the memory are refused, and the message names the limit."""

from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import load_fleet


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("nodes: " + "[" * 1_000_000, "expected at most 100 levels", id="a-million-brackets"),
        pytest.param(
            f'nodes: [{{name: "n-[{"0" * 5000}-{"9" * 5000}]", cpu: 4}}]',
            "expected numbers of at most 9 digits",
            id="many-digits",
        ),
        pytest.param(
            'nodes: [{name: "n-[0-999999999]", cpu: 4}]', "expected a range that goes up", id="a-billion-nodes"
        ),
    ],
)
def test_a_fleet_beyond_the_limits_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        load_fleet(path)
