"""Fixtures of the tests of pages."""

from collections.abc import Iterator

import pytest

from seatrial.reports.browser import Browser, program


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once for each module; without it the test is skipped."""
    executable = program()
    if executable is None:
        pytest.skip("needs a browser; install the Debian package chromium")
    with Browser(executable) as browser:
        yield browser
