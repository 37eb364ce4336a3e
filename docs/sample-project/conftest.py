"""This project's own conftest: options and fixtures that have the names of seatrial's, and stay its own."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=7, help="seed of this project's generators")
    parser.addoption("--backend", default="sqlite", help="database of this project")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--seed")
    return value
