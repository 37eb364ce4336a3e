"""`seatrial explain`: why a pod is where it is, or why it is nowhere, as our scheduler sees it now."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from typing import Annotated, Any

from cyclopts import Parameter

from harness.errors import SubjectError, UsageError

ANSWER_WITHIN = 30.0  # seconds; every plugin is asked about every node
DEFAULT_SERVER = "http://127.0.0.1:10251"


def explain(
    pod: str,
    *,
    server: str = DEFAULT_SERVER,
    top: int = 5,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Ask a running scheduler of ours about one pod and print which nodes would do, and why the others would not.

    Args:
        pod: Its name, with its namespace before it if that is not default: NAMESPACE/NAME.
        server: Where the scheduler serves its debugging pages (its flags --address and --port).
        top: How many of the best nodes to list with their scores.
        json_: Print the whole answer as JSON.
    """
    namespace, _, name = pod.rpartition("/")
    if not name or "/" in namespace:
        raise UsageError(f"explain: expected NAME or NAMESPACE/NAME, found {pod!r}")
    found = ask(server, namespace or "default", name)
    if json_:
        print(json.dumps(found, indent=2))
        return
    print("\n".join(lines_for(found, top)))


def ask(server: str, namespace: str, name: str) -> dict[str, Any]:
    """The scheduler's answer.

    Raises:
        UsageError: the address is none, or the scheduler does not know the pod.
        SubjectError: there is no scheduler there, or it is not ours.
    """
    if urllib.parse.urlsplit(server).scheme not in {"http", "https"}:
        raise UsageError(f"explain --server: expected a URL as {DEFAULT_SERVER}, found {server!r}")
    path = "/".join(urllib.parse.quote(part, safe="") for part in (namespace, name))
    url = f"{server.rstrip('/')}/apis/v1/explain/{path}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_WITHIN) as answer:  # noqa: S310 the scheme is checked above
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            words = error.read().decode(errors="replace").strip()
        if error.code == 404 and words.startswith("{"):
            raise UsageError(f"explain: the scheduler at {server} says: {json.loads(words)['message']}") from None
        raise SubjectError(f"explain: {server} answered {error.code} {words!r}; is that our scheduler?") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SubjectError(f"explain: no scheduler answers at {server}: {reason}; see its flag --port") from None
    if not isinstance(found, dict) or "rejected" not in found:
        raise SubjectError(f"explain: {server} answered something else than an explanation; is that our scheduler?")
    return found


def lines_for(found: dict[str, Any], top: int) -> list[str]:
    """What to print."""
    key = f"{found['pod']['namespace']}/{found['pod']['name']}"
    state = (
        f"on node {found['node']}" if found["node"] else f"pending, in the queue's place {found['queue'] or 'none'!r}"
    )
    feasible, rejected = found["feasible"], found["rejected"]
    lines = [f"{key}: {state}; {len(feasible)} of {len(feasible) + len(rejected)} nodes would take it now"]
    if feasible:
        plugins = sorted({plugin for one in feasible for plugin in one["byPlugin"]})
        rows = [["node", "score", *plugins]]
        rows += [
            [one["node"], str(one["score"]), *(str(one["byPlugin"].get(plugin, 0)) for plugin in plugins)]
            for one in feasible[:top]
        ]
        lines += ["", *_table(rows)]
    if rejected:
        reasons = Counter(
            (one["plugin"], reason, one["preemptionMightHelp"]) for one in rejected for reason in one["reasons"]
        )
        rows = [["nodes", "plugin", "reason", "preemption"]]
        rows += [
            [str(count), plugin, reason, "might help" if helps else "no help"]
            for (plugin, reason, helps), count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ]
        lines += ["", *_table(rows)]
    return lines


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
