"""The rows that the page shows, by table and key, and which of them have changed."""

from collections import defaultdict
from typing import Any

Row = dict[str, Any]
Changes = dict[str, dict[str, Row | None]]
"""Rows by table and key; None: the row is gone."""


class Tables:
    """Rows of JSON values."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Row]] = defaultdict(dict)
        self._changes: Changes = defaultdict(dict)

    def set(self, table: str, key: str, row: Row) -> None:
        if self._rows[table].get(key) != row:
            self._rows[table][key] = row
            self._changes[table][key] = row

    def drop(self, table: str, key: str) -> None:
        if self._rows[table].pop(key, None) is not None:
            self._changes[table][key] = None

    def rows(self, table: str) -> dict[str, Row]:
        return self._rows[table]

    def all(self) -> dict[str, dict[str, Row]]:
        return dict(self._rows)

    def changes(self) -> Changes:
        """What has changed since the last call."""
        changes, self._changes = self._changes, defaultdict(dict)
        return dict(changes)
