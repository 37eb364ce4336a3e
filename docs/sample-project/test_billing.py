"""Tests of this project that know nothing of seatrial."""

import sys

import fixtures
import scheduler


def test_own_modules_are_imported() -> None:
    assert fixtures.customers() == ["ada", "grace"]
    assert scheduler.next_run(20) == 2


def test_own_options_and_fixtures_are_in_force(seed: int, pytestconfig) -> None:
    assert seed == 7
    assert pytestconfig.getoption("--backend") == "sqlite"


def test_nothing_of_seatrial_is_loaded() -> None:
    assert not [name for name in sys.modules if name.partition(".")[0] == "seatrial"]
