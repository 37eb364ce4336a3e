"""The handle of a proxy process: the same trouble as `FaultyTransport` makes, for a scheduler that is a process."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from seatrial.harness.clusters.fault_injection.transport import Picks, encode_picks, every
from seatrial.harness.errors import ClusterError
from seatrial.harness.processes import first_answer, start_child, stop
from seatrial.scheduler.api.private_files import private_folder


class TroubledWay:
    """A way to the API server of `kubeconfig` that can be made to fail; `offered` is the kubeconfig that takes it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._cleanup = ExitStack()
        self.offered = self._cleanup.enter_context(private_folder()) / "kubeconfig"
        self._process: subprocess.Popen[bytes] | None = None
        self._delay = 0.0

    def __enter__(self) -> Self:
        self._process = start_child(
            [
                sys.executable,
                "-m",
                "seatrial.harness.clusters.fault_injection.proxy",
                str(self._kubeconfig),
                str(self.offered),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        hear = self._hear()
        if "kubeconfig" not in hear:
            self.__exit__(None, None, None)
            raise ClusterError(f"the proxy did not start: {hear.get('error', hear)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            stop(self._process)
        self._cleanup.close()

    # -- trouble, as in FaultyTransport -------------------------------------------------------------------------------

    def refuse(self, code: int, picks: Picks = every) -> None:
        """Answer requests for which `picks` is true with this status code; they do not reach the server."""
        self._tell(do="refuse", code=code, picks=encode_picks(picks))

    def lose_answers(self, picks: Picks = every) -> None:
        """Pass requests for which `picks` is true on, and break the connection instead of answering."""
        self._tell(do="lose", picks=encode_picks(picks))

    def cut(self) -> None:
        """Break all streams, and every connection on which a request comes, until `heal`."""
        self._tell(do="cut")

    def break_streams(self) -> None:
        """Break the streams that run now; new ones work."""
        self._tell(do="break")

    def hold_streams(self) -> None:
        """Keep back what streams send, until `heal`."""
        self._tell(do="hold")

    def expire_watches(self) -> None:
        """Break the streams that run now, and tell watches that they are too old until their collections are listed."""
        self._tell(do="expire")

    def cut_lists(self, size: int) -> None:
        """Answer lists in pages of at most `size` objects, until `heal`."""
        self._tell(do="pages", size=size)

    def heal(self) -> None:
        """End all trouble but the delay; what was kept back is sent."""
        self._tell(do="heal")

    @property
    def delay(self) -> float:
        """Seconds by which each answer is late; streams are not delayed."""
        return self._delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        self._delay = seconds
        self._tell(do="delay", seconds=seconds)

    # -- what has passed ----------------------------------------------------------------------------------------------

    @property
    def answers(self) -> Counter[int]:
        """How many answers have passed, by status code; 0: those that were lost."""
        return Counter({int(code): count for code, count in self._tell(do="nothing")["answers"].items()})

    @property
    def refused(self) -> int:
        """How many requests were refused."""
        return int(self._tell(do="nothing")["refused"])

    @property
    def lost(self) -> int:
        """How many answers were lost; their requests were carried out."""
        return int(self._tell(do="nothing")["lost"])

    def _tell(self, **order: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClusterError(f"the proxy to the API server has ended: {error.strerror}") from error
        answer = self._hear()
        if "error" in answer:
            raise ClusterError(f"the proxy to the API server: {answer['error']}")
        return answer

    def _hear(self) -> dict[str, Any]:
        assert self._process is not None
        answer = first_answer(self._process)
        if not answer:
            raise ClusterError("the proxy to the API server has ended")
        return answer
