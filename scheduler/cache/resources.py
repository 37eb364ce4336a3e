"""ResourceIndex: resource names as column numbers, shared by `NodeColumns` and the vectors of pods."""

from seatrial.scheduler.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

PODS_COLUMN, CPU_COLUMN, MEMORY_COLUMN, STORAGE_COLUMN, UNOFFERED_COLUMN = range(5)
UNOFFERED = "not offered by any node"


class ResourceIndex:
    """Numbers resource names that nodes offer or the configuration names; a number never changes.

    All other names have one column together, of which no node has anything: users choose what their pods request, and
    each column is an array over all nodes.
    """

    def __init__(self) -> None:
        self.names: list[str] = [PODS, CPU, MEMORY, EPHEMERAL_STORAGE, UNOFFERED]
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

    def column_of_request(self, name: str) -> int:
        """The number of a resource that a pod requests."""
        return self._columns.get(name, UNOFFERED_COLUMN)
