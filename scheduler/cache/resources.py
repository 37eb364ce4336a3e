"""ResourceIndex: resource names as column numbers, shared by `NodeColumns` and the vectors of pods."""

from seatrial.scheduler.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

PODS_COLUMN, CPU_COLUMN, MEMORY_COLUMN, STORAGE_COLUMN, UNOFFERED_COLUMN = range(5)
UNOFFERED = "not offered by any node"
BY_CLAIM = (1 << 48) + 1
"""What a node has of an extended resource that it does not offer itself and that ResourceClaims can serve: never short.

Then DynamicResources decides whether the node has the devices (DRA-R106)."""


class ResourceIndex:
    """Numbers resource names that nodes offer or the configuration names; a number never changes.

    All other names have one column together, of which no node has anything: users choose what their pods request, and
    each column is an array over all nodes.

    `by_claims`: names of extended resources that ResourceClaims can serve (`Cache.serve_by_claims`).
    """

    def __init__(self) -> None:
        self.names: list[str] = [PODS, CPU, MEMORY, EPHEMERAL_STORAGE, UNOFFERED]
        self._columns = {name: column for column, name in enumerate(self.names)}
        self.by_claims: frozenset[str] = frozenset()

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

    def part(self, name: str, amount: int) -> tuple[int, int]:
        """The column and the amount that a request counts with; 0 of what only ResourceClaims can serve."""
        column = self._columns.get(name)
        if column is not None:
            return column, amount
        return UNOFFERED_COLUMN, 0 if name in self.by_claims else amount
