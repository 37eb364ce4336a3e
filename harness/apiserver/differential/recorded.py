"""Recorded answers of kube-apiserver, so that a comparison needs neither its binary nor etcd.

`answers.txt` has one line for each request: a digest of the request and the outcome. A request that
has changed since has another digest and is reported as not recorded.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import orjson

from seatrial.harness.apiserver.differential.comparison import FOLDER, Call, Outcome, Send, calls

ANSWERS = FOLDER / "answers.txt"
NAMESPACE = "differential"  # in place of the namespace of a run
NOT_RECORDED = Outcome(0, "not recorded; see docs/api-conformance.md")
_DIGEST = 4  # bytes; a request is looked up by its place and digest


def _digest(call: Call) -> str:
    return hashlib.blake2b(repr(call._replace(wait=0.0)).encode(), digest_size=_DIGEST).hexdigest()


def record(theirs: Send, namespace: str, path: Path = ANSWERS) -> int:
    """Write the answers of a server. Returns their number."""
    lines = []
    for call, plain in zip(calls(namespace), calls(NAMESPACE), strict=True):
        result = theirs(call)
        fields = orjson.dumps([result.code, result.reason, result.causes, result.warned, result.shown]).decode()
        lines.append(f"{_digest(plain)} {fields.replace(namespace, NAMESPACE)}\n")
    path.write_text("".join(lines))
    return len(lines)


def recorded(path: Path = ANSWERS) -> Send:
    """The recorded server. It must get the calls of `calls(NAMESPACE)` in their order."""
    answers = _read(path)

    def send(call: Call) -> Outcome:
        digest, outcome = next(answers, ("", NOT_RECORDED))
        return outcome if digest == _digest(call) else NOT_RECORDED

    return send


def _read(path: Path) -> Iterator[tuple[str, Outcome]]:
    for line in path.read_text().splitlines():
        digest, _, text = line.partition(" ")
        code, reason, causes, warned, shown = orjson.loads(text)
        yield digest, Outcome(code, reason, tuple((field, why) for field, why in causes), warned, shown)
