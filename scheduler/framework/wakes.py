"""Requests of events and plugins to look again at pods that wait. The core answers them before its next decision."""


class WakeRequests:
    """What changed for pods that wait, since the core last looked.

    `wake`: a node may have become feasible for waiting pods. `gates`: wake keys whose held pods are to be asked again.
    `regate`: gate keys of pods in the queue may have changed. `leading`: a standby holds no pods and opens no gate.
    """

    __slots__ = ("gates", "leading", "regate", "wake")

    def __init__(self) -> None:
        self.leading = True
        self.wake = False
        self.gates: set[str] = set()
        self.regate = False

    def open(self, key: str) -> None:
        """Have the pods asked again that are held back under this wake key."""
        if self.leading:
            self.gates.add(key)

    def read_gates_again(self) -> None:
        """Have the gate keys of all pods in the queue read again."""
        self.regate = True
        self.open("")  # the core reads `regate` when a gate opened

    def take_gates(self) -> set[str]:
        """The opened gates, which are closed again."""
        gates, self.gates = self.gates, set()
        return gates

    def take_regate(self) -> bool:
        """Whether gate keys are to be read again; only once."""
        regate, self.regate = self.regate, False
        return regate
