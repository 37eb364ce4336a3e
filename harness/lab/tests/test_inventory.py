from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.harness.errors import UsageError
from seatrial.harness.lab.inventory import load_inventory, parse_inventory
from seatrial.harness.lab.tests.inventories import plain
from seatrial.harness.lab.windows import Window, active, next_start

NIGHTLY = {"name": "nightly", "machines": ["big"], "from": "22:00", "to": "04:00"}
FRIDAY_NOON = 1_767_355_200.0 + 0  # 2026-01-02 12:00 UTC
HOUR = 3600.0


def machine(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "big", "cards": [{"name": "0", "model": "h100"}]} | changes]


def test_paths_are_relative_to_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(plain(windows=[NIGHTLY])))
    inventory = load_inventory(path)
    assert inventory.leases.file == str(tmp_path / "ledger.json")
    assert [len(machine.cards) for machine in inventory.machines] == [4, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machines": []}, "machines: expected at least one card or NIC, found none"),
        ({"machines": machine() + machine()}, "machine: the name 'big' is there twice"),
        ({"machines": machine(colour="red")}, r"unknown field `colour` - at `\$.machines\[0\]`"),
        ({"machines": machine(name="a/b")}, "machine: expected a name of letters, digits .* found 'a/b'"),
        ({"machines": machine(nics=[{"name": "0", "model": "cx7"}])}, "device: the name '0' is there twice"),
        ({"machines": machine(hooks={"on": {"command": []}})}, "hook 'on': command: expected a program"),
        ({"machines": machine(hooks={"on": {"command": "reboot now"}})}, "Expected `array`, got `str`"),
        ({"machines": machine(hooks={"on": {"command": ["x", "{node}"]}})}, "expected {holder}, .* found {node}"),
        ({"machines": machine(prepare=["reimage"])}, r"prepare: expected the name of a hook \(none\), found 'reimage'"),
        ({"leases": {}}, "leases: expected either file or kubeconfig, found neither"),
        ({"leases": {"file": "a", "kubeconfig": "b"}}, "found both"),
        ({"ttl": 1}, "ttl: expected 5 to 3600 seconds, found 1"),
        ({"windows": [NIGHTLY | {"machines": ["huge"]}]}, r"expected a machine \(big, small\), found 'huge'"),
        ({"windows": [NIGHTLY | {"from": "25:00"}]}, "from: expected a time such as \"01:00\", found '25:00'"),
        ({"windows": [NIGHTLY | {"zone": "Mars/Base"}]}, "zone: expected a time zone .* found 'Mars/Base'"),
        ({"windows": [NIGHTLY | {"days": ["funday"]}]}, "days: expected mon, .* found 'funday'"),
    ],
)
def test_mistakes_are_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"inventory lab\.yaml: .*{words}"):
        parse_inventory(plain(**changes), where=Path("lab.yaml"))


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), ("a: [", "expected YAML"), ("- 1", "Expected `object`")]
)
def test_files_that_are_no_inventory_are_refused(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "lab.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=words):
        load_inventory(path)


def window(**changes: Any) -> tuple[Window, ...]:
    inventory = parse_inventory(plain(windows=[NIGHTLY | changes]), where=Path("lab.yaml"))
    return inventory.windows


@pytest.mark.parametrize(
    ("changes", "hours_later", "inside", "hours_to_next"),
    [
        pytest.param({}, 0, False, 10, id="noon"),
        pytest.param({}, 10, True, 24, id="its-first-second"),
        pytest.param({}, 14, True, 20, id="after-midnight"),
        pytest.param({}, 16, False, 18, id="its-end"),
        pytest.param({"days": ["sat"]}, 11, False, 23, id="another-day"),
        pytest.param({"days": ["fri"]}, 14, True, 6 * 24 + 20, id="the-night-after-its-day"),
        pytest.param({"zone": "Europe/Berlin"}, 9, True, 24, id="another-zone"),
    ],
)
def test_windows(changes: dict[str, Any], hours_later: float, inside: bool, hours_to_next: float) -> None:
    windows, wall = window(**changes), FRIDAY_NOON + hours_later * HOUR
    assert (active(windows, "big", wall) is not None) is inside
    assert active(windows, "small", wall) is None
    assert next_start(windows, "big", wall, besides="") == wall + hours_to_next * HOUR
    assert next_start(windows, "big", wall, besides="nightly") is None


def test_a_window_has_its_local_times_when_clocks_are_changed() -> None:
    """In Berlin the night of 2026-03-28 has no hour from 2 to 3: from 22:00 to 04:00 are five hours."""
    saturday_noon = 1_774_699_200.0  # 2026-03-28 12:00 UTC, 13:00 in Berlin
    (spans,) = [
        occurrence
        for occurrence in window(zone="Europe/Berlin")[0].occurrences(saturday_noon)
        if saturday_noon < occurrence[0] < saturday_noon + 24 * HOUR
    ]
    assert spans == (saturday_noon + 9 * HOUR, saturday_noon + 14 * HOUR)
