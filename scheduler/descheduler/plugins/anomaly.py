"""AnomalyDetector: a node is hot after several rounds in a row, and normal after several normal ones (RSV-R88)."""


class AnomalyDetector:
    """Judges one node."""

    __slots__ = ("_abnormal", "_abnormal_limit", "_normal", "_normal_limit", "_since", "_timeout", "anomalous", "seen")

    def __init__(self, abnormal_limit: int, normal_limit: int, timeout: float) -> None:
        """Anomalous after more than `abnormal_limit` abnormal marks in a row, until more than `normal_limit` normal
        ones, or until `timeout` seconds without a mark that is abnormal."""
        self._abnormal_limit, self._normal_limit, self._timeout = abnormal_limit, normal_limit, timeout
        self._abnormal = self._normal = 0
        self._since = 0.0
        self.anomalous = False
        self.seen = 0.0  # time of the last mark

    def mark(self, now: float, *, abnormal: bool) -> bool:
        """Record one round; whether the node is anomalous."""
        if self.anomalous and now - self._since > self._timeout:
            self.reset()
        self.seen = now
        if abnormal:
            self._normal = 0
            self._abnormal += 1
            self._since = now
            self.anomalous = self.anomalous or self._abnormal > self._abnormal_limit
        else:
            self._normal += 1
            if not self.anomalous:
                self._abnormal = 0
            elif self._normal > self._normal_limit:
                self.reset()
        return self.anomalous

    def reset(self) -> None:
        self.anomalous = False
        self._abnormal = self._normal = 0
