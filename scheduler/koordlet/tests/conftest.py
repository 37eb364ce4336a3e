from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from seatrial.fake_devices.noderoot import IN_MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory, where there is one: these tests make a fake root of a node each."""
    with TemporaryDirectory(prefix="seatrial-root-", dir=IN_MEMORY) as folder:
        yield Path(folder)
