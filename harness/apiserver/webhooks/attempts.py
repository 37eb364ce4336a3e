"""Requests that have to wait: `handle` never does, so a request that needs a webhook's answer is carried out again.

Whoever carries out a request keeps an `Attempt` for it. Where an answer is missing, `Pending` ends the try; when the
answers have come, the next try finds them in the attempt. Answers are found by what was asked, word for word: if the
object has changed in the meantime, the webhook is asked again. What was drawn by lot stays as it was first drawn.
"""

from dataclasses import dataclass, field
from typing import Final

from harness.apiserver.errors import ApiStatusError

TRIES: Final = 64  # of one request; more means that its object changes faster than its webhooks answer


@dataclass(frozen=True, slots=True)
class Call:
    """One question to one webhook."""

    webhook: str  # its name
    url: str
    ca_bundle: str  # PEM; empty: the system's authorities
    body: bytes  # the AdmissionReview, JSON
    seconds: float  # that it may take
    host: str = ""  # to connect to, where that is not the URL's
    port: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a body with its HTTP code, or, with code 0, why nothing did."""

    code: int
    body: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a new object got by lot, and when."""

    name: str
    uid: str
    created: str


@dataclass(slots=True, eq=False)
class Attempt:
    """What one request has learnt in its earlier tries."""

    answers: dict[tuple[str, bytes], Answer] = field(default_factory=dict)
    drawn: Drawn | None = None
    tries: int = 0


FIRST: Final = Attempt()  # of a request that can wait and has not begun to: nobody writes to this one


class Pending(ApiStatusError):
    """Answers are missing: have them fetched, then try again with the attempt.

    It is a refusal only for those who cannot wait.
    """

    def __init__(self, attempt: Attempt, calls: "dict[tuple[str, bytes], Call]") -> None:
        self.attempt, self.calls = attempt, calls
        names = ", ".join(f'"{call.webhook}"' for call in calls.values())
        super().__init__(504, "Timeout", f"the request waits for the answer of admission webhook {names}")
