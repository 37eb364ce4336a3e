"""RowLog: which rows changed, in order. The oldest entries are dropped. Readers keep their position, a number."""

LIMIT = 1 << 17  # 1 MiB; half is dropped then


class RowLog:
    """A log of rows."""

    __slots__ = ("_rows", "_start", "end")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._start = 0
        self.end = 0  # length of the log since the beginning

    def add(self, row: int) -> None:
        self._rows.append(row)
        self.end += 1
        if len(self._rows) > LIMIT:
            del self._rows[: LIMIT // 2]
            self._start += LIMIT // 2

    def since(self, position: int, count: int) -> list[int] | None:
        """Rows logged since `position`, each once, oldest first; None: more than `count`, use all rows."""
        if position < self._start or self.end - position > count:
            return None
        recent = self._rows[position - self._start :]
        return recent if len(recent) < 2 else list(dict.fromkeys(recent))

    def has_marked(self, marks: bytearray, position: int) -> bool:
        """Whether a row with a mark, [row], was logged since `position`. No row came since the marks were made."""
        start = position - self._start
        return start < 0 or any(map(marks.__getitem__, self._rows[start:]))
