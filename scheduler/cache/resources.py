"""ResourceIndex: resource names as column numbers, shared by `NodeColumns` and the vectors of pods."""

from seatrial.scheduler.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

PODS_COLUMN, CPU_COLUMN, MEMORY_COLUMN, STORAGE_COLUMN = range(4)


class ResourceIndex:
    """Numbers resource names in the order in which they are first seen; a number never changes."""

    def __init__(self) -> None:
        self.names: list[str] = [PODS, CPU, MEMORY, EPHEMERAL_STORAGE]
        self._columns = {name: column for column, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> int:
        """The number of `name`, assigned now if it has none."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self.names)
            self.names.append(name)
        return column
