"""State of requests that wait for webhooks or long computations: `handle` never blocks, so they are executed again.

The caller keeps an `Attempt` per request. If a response is missing, `Pending` aborts the execution; once the responses
have arrived, the next execution finds them in the attempt. Responses are keyed by webhook and exact review: if the
object has changed meanwhile, the webhook is called again. Generated names, UIDs and timestamps are kept across tries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from seatrial.harness.apiserver.errors import ApiStatusError

MAX_TRIES: Final = 64  # per request; beyond that, its object changes faster than its webhooks respond


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one webhook."""

    webhook: str  # its name
    url: str
    ca_bundle: str  # PEM; empty: the system's CA certificates
    body: bytes  # the AdmissionReview, JSON
    seconds: float  # timeout
    host: str = ""  # to connect to, if different from the URL's
    port: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The response: an HTTP code and body, or code 0 and the reason (`why`) that there is none."""

    code: int
    body: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True)
class GeneratedIdentity:
    """The generated name and UID of a new object, and its creation timestamp."""

    name: str
    uid: str
    created: str


@dataclass(slots=True, eq=False)
class Attempt:
    """The webhook responses and generated identity that one request has collected in its tries."""

    answers: dict[tuple[str, bytes], Answer] = field(default_factory=dict)
    identity: GeneratedIdentity | None = None
    tries: int = 0


FIRST: Final = Attempt()  # for a request that can wait, in its first try; never modified


def own_attempt(attempt: Attempt | None) -> Attempt:
    """The attempt of a request that has to be executed again."""
    return Attempt() if attempt is None or attempt is FIRST else attempt


class Pending(ApiStatusError):
    """Webhook responses, or the result of a long computation, are missing.

    The caller fetches them (`Webhooks.fetch`) and executes the request again with the attempt. `computation` starts the
    computation and calls its argument at the end. For callers that cannot wait it is an error response (504).
    """

    def __init__(
        self,
        attempt: Attempt,
        calls: "dict[tuple[str, bytes], Call]",
        computation: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.attempt, self.calls, self.computation = attempt, calls, computation
        names = ", ".join(f'"{call.webhook}"' for call in calls.values())
        what = f"the answer of admission webhook {names}" if calls else "a long computation"
        super().__init__(504, "Timeout", f"the request waits for {what}")
