"""The page of a cluster as a file: objects as they were at one moment."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from seatrial.reports.live.cluster_view import ClusterView
from seatrial.reports.live.server import page


def frozen_page(title: str, objects: Mapping[str, Iterable[Mapping[str, Any]]]) -> bytes:
    """An HTML file that shows these objects, by the path of their list. One that cannot be read is left out."""
    view = ClusterView()
    for path, bodies in objects.items():
        for body in bodies:
            with suppress(msgspec.DecodeError, msgspec.ValidationError, ValueError):
                view.put(path, msgspec.json.encode(body))
    view.refresh()
    rows = msgspec.json.encode(view.tables.all()).decode()
    return page(title, "frozen", rows.replace("<", "\\u003c"))
