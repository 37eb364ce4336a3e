"""`seatrial explain`: why a pod is on its node, or why it is not placed.

The answer comes from our scheduler and describes the present state. With a kubeconfig, the conditions and events that
the API server has are printed first; any scheduler writes these.
"""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.clusters.detached import Detached, down_command, find, names
from seatrial.harness.clusters.identity import cluster_uid
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.commands.scheduling_record import lines_of, record_of
from seatrial.harness.commands.text_table import table_lines
from seatrial.harness.errors import ApiRefused, SubjectError, UsageError

ANSWER_WITHIN = 30.0  # seconds; every plugin is evaluated for every node
MAX_REASONS = 20  # texts of reasons may differ from node to node
DEFAULT_SERVER = "http://127.0.0.1:10251"
KINDS = frozenset(
    {"deploy", "deployment", "rs", "replicaset", "sts", "statefulset", "ds", "daemonset", "job", "cronjob"}
)


def explain(
    pod: str,
    *,
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    kubeconfig: Path | None = None,
    server: str | None = None,
    top: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 5,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Print why a pod is on its node, from the decision that was made, or why it is not placed: nodes and reasons.

    Args:
        pod: The pod's name, or NAMESPACE/NAME.
        namespace: The pod's namespace, if it is not default.
        kubeconfig: Kubeconfig of the pod's cluster: prints conditions, events and explanations, and the answer of our
            scheduler, if one answers.
        server: URL at which the scheduler serves HTTP (its flags --address and --port), by default the recorded
            address of the scheduler of `seatrial up`: of the cluster that the kubeconfig names, or of the only one
            that is up.
        top: Number of best nodes to print with their scores.
        json_: Print the whole answer as JSON.
    """
    before, _, name = pod.rpartition("/")
    if not name or "/" in before:
        raise UsageError(f"explain: expected NAME or NAMESPACE/NAME, found {pod!r}")
    kind = before.partition(".")[0]  # of deployments.apps/NAME
    if KINDS & {kind, kind.removesuffix("s")} and not namespace:
        raise UsageError(
            f"explain: expected a pod, found {pod!r}; `kubectl get pods` lists its pods, of which one is named NAME,"
            " NAMESPACE/NAME or NAME --namespace NAMESPACE"
        )
    if namespace and before not in {"", namespace}:
        raise UsageError(f"explain: pod {pod!r} names another namespace than --namespace {namespace}")
    where = namespace or before or "default"
    if kubeconfig is None:
        answer = ask(server or _only_scheduler(), where, name)
        print(json.dumps(answer, indent=2) if json_ else "\n".join(lines_for(answer, top)))
        return
    record = record_of(kubeconfig, where, name)
    seen, missing = _asked_as_well(server, kubeconfig, record)
    if json_:
        print(json.dumps({"record": record, "scheduler": seen, "schedulerMissing": missing}, indent=2))
        return
    lines = lines_of(record)
    lines += ["", "by our scheduler:", *lines_for(seen, top)] if seen is not None else ["", missing]
    print("\n".join(lines))


def _only_scheduler() -> str:
    """The recorded address of the scheduler of the only cluster that is up.

    Raises:
        UsageError: there is no such cluster, there are several, or its scheduler has ended.
        SubjectError: another cluster than the recorded one answers.
    """
    running = _running()
    if len(running) != 1:
        text = "several clusters are up: " + ", ".join(each.name for each in running) if running else "no cluster is up"
        raise UsageError(f"explain: expected --kubeconfig FILE or --server URL, because {text}")
    (cluster,) = running
    if cluster.kubeconfig and Path(cluster.kubeconfig).exists():
        _check_uid(cluster, cluster_uid(Path(cluster.kubeconfig)))
    return _address(cluster)


def _recorded_schedulers(kubeconfig: Path) -> list[str]:
    """The addresses of schedulers that `seatrial up` started for the cluster that a kubeconfig names.

    Raises:
        UsageError: there is none, or it has ended.
        SubjectError: the address or file is that of a recorded cluster and the UID is another one.
    """
    url, uid = load_access(kubeconfig).url, cluster_uid(kubeconfig)
    path = str(kubeconfig.resolve())
    recorded = [each for each in _running() if url == each.url or uid == each.uid or path == each.kubeconfig]
    for cluster in recorded:
        _check_uid(cluster, uid)
    if not recorded:
        raise UsageError(
            f"explain: `seatrial up` on this machine started no scheduler for the cluster at {url} (UID {uid});"
            " if our scheduler runs elsewhere, give its address with --server"
        )
    live = [cluster.scheduler for cluster in recorded if cluster.scheduler_alive]
    return live or [_address(cluster) for cluster in recorded]


def _running() -> list[Detached]:
    return [cluster for name in names() if (cluster := find(name)) is not None]


def _check_uid(cluster: Detached, text: str) -> None:
    """
    Raises:
        SubjectError: the cluster that answers has another UID than the recorded one.
    """
    if text != cluster.uid:
        raise SubjectError(
            f"explain: cluster {cluster.name!r} was recorded with UID {cluster.uid or 'unknown'}, but the cluster that"
            f" answers has UID {text}: another cluster, whose pods the recorded scheduler does not have. Use the"
            f" kubeconfig of {cluster.name!r}, or end that cluster with {down_command(cluster.name)}"
        )


def _address(cluster: Detached) -> str:
    """
    Raises:
        UsageError: the cluster was started without our scheduler, or the scheduler has ended.
    """
    if not cluster.scheduler:
        raise UsageError(f"explain: cluster {cluster.name!r} was started without our scheduler, which explains")
    if not cluster.scheduler_alive:
        raise UsageError(
            f"explain: the scheduler of cluster {cluster.name!r} has ended;"
            f" `seatrial logs {cluster.name} --component scheduler` has its last words"
        )
    return cluster.scheduler


def _asked_as_well(server: str | None, kubeconfig: Path, record: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The scheduler's answer, or None and the reason.

    Raises:
        UsageError, SubjectError: from the server that the user named.
        SubjectError: the cluster has another UID than the recorded one.
    """
    reference = record["pod"]
    if server is None:
        try:
            servers = _recorded_schedulers(kubeconfig)
        except (UsageError, ApiRefused) as error:
            return None, str(error)
    else:
        servers = [server]
    missing = ""
    for each in servers:
        try:
            answer = ask(each, reference["namespace"], reference["name"])
        except (SubjectError, UsageError) as error:
            if server is not None:
                raise
            missing = str(error)
            continue
        if answer["pod"]["uid"] == reference["uid"]:
            return answer, ""
        missing = f"explain: the scheduler at {each} has a pod of that name with another UID: another cluster"
    return None, missing


def ask(server: str, namespace: str, name: str) -> dict[str, Any]:
    """Request the explanation of a pod from our scheduler.

    Raises:
        UsageError: the URL is malformed, or the scheduler does not have the pod.
        SubjectError: no scheduler answers at the URL, or it is not ours.
    """
    _check_url(server)
    path = "/".join(urllib.parse.quote(part, safe="") for part in (namespace, name))
    url = f"{server.rstrip('/')}/apis/v1/explain/{path}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_WITHIN) as answer:  # noqa: S310 the scheme is checked above
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            words = error.read().decode(errors="replace").strip()
        if error.code == 404 and words.startswith("{"):
            raise UsageError(f"explain: the scheduler at {server} answered: {json.loads(words)['message']}") from None
        raise SubjectError(f"explain: {server} answered {error.code} {words!r}; is that our scheduler?") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise SubjectError(f"explain: no scheduler answers at {server}: {reason}; see its flag --port") from None
    if not isinstance(document, dict) or "rejected" not in document:
        raise SubjectError(f"explain: {server} answered something else than an explanation; is that our scheduler?")
    return document


def _check_url(server: str) -> None:
    try:
        parts = urllib.parse.urlsplit(server)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number or too large, half an IPv6 address
        usable = False
    if not usable or not server.isascii() or any(sign.isspace() for sign in server):
        raise UsageError(f"explain --server: expected a URL as {DEFAULT_SERVER}, found {server!r}")


def lines_for(results: dict[str, Any], top: int) -> list[str]:
    """The lines to print for an explanation; `top` is the number of best nodes."""
    key = f"{results['pod']['namespace']}/{results['pod']['name']}"
    if results["node"] and results.get("decision"):
        return [
            f"{key}: on node {results['node']}{_when(results['decision'])}",
            *_notes(results),
            *_decision_lines(results, top),
        ]
    state = f"on node {results['node']}" if results["node"] else f"pending, in queue {results['queue'] or 'none'!r}"
    feasible, rejected = results["feasible"], results["rejected"]
    lines = [f"{key}: {state}; {len(feasible)} of {len(feasible) + len(rejected)} nodes fit now"]
    if results["node"] and "keptDecisions" in results and not results.get("heldBack"):
        lines.append(_not_kept(results["keptDecisions"]))
    if results.get("heldBack"):
        lines.append(f"held back: {results['heldBack']}")
    lines += [*_notes(results), *map(_lacking, results.get("lacking", ()))]
    if feasible:
        plugins = sorted({plugin for node in feasible for plugin in node["byPlugin"]})
        rows = [["node", "score", *plugins]]
        rows += [
            [node["node"], str(node["score"]), *(str(node["byPlugin"].get(plugin, 0)) for plugin in plugins)]
            for node in feasible[:top]
        ]
        lines += ["", *table_lines(rows)]
    if rejected:
        rows = reasons(rejected)
        lines += ["", *table_lines([["nodes", "plugin", "reason", "preemption"], *rows[:MAX_REASONS]])]
        if len(rows) > MAX_REASONS:
            lines.append(f"and {len(rows) - MAX_REASONS} more reasons for at most as many nodes each; see --json")
    return lines


def reasons(rejected: list[dict[str, Any]]) -> list[list[str]]:
    """Why nodes are rejected, from the `rejected` of an explanation, the most frequent reason first.

    Each row has the number of nodes, the plugin, the reason, and whether preemption might help.
    """
    counts = Counter(
        (node["plugin"], reason, node["preemptionMightHelp"]) for node in rejected for reason in node["reasons"]
    )
    return [
        [str(count), plugin, reason, "might help" if helps else "no help"]
        for (plugin, reason, helps), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _notes(results: dict[str, Any]) -> list[str]:
    return [f"note: {note}" for note in results.get("notes", ())]


def _not_kept(size: int) -> str:
    if not size:
        return "the scheduler keeps no decisions (--kept-decisions 0); this is what it finds now:"
    return f"the decision is not kept: not made by this scheduler, or not one of its last {size:,}; it finds now:"


def _lacking(one: dict[str, str]) -> str:
    most = f"most free is {one['mostFree']} on {one['mostFreeOn']}"
    nearest = (
        "" if one["nearest"] == one["mostFreeOn"] else f"; {one['nearest']}, which comes nearest, has {one['free']}"
    )
    return f"{one['resource']}: asks {one['asked']}, {most}{nearest}"


def _when(decision: dict[str, Any]) -> str:
    since = decision["secondsSinceCreation"]
    return f", decided {decision['time']}" + ("" if since is None else f", {since:g} s after the pod's creation")


def _score(scores: list[int]) -> str:
    raw, normalized = scores
    return str(raw) if raw == normalized else f"{raw} → {normalized}"


def _decision_lines(results: dict[str, Any], top: int) -> list[str]:
    """What is kept of the decision that put the pod on its node: scores, and who rejected the other nodes."""
    decision = results["decision"]
    rows = [
        [
            one["node"],
            str(one["score"]) if one["exact"] else f"at most {one['score']}",
            "selected" if one["node"] == results["node"] else "",
        ]
        for one in decision["best"][:top]
    ]
    lines = ["", *table_lines([["node", "score", ""], *rows])] if rows else []
    best = decision["best"][:top]
    plugins = [
        [plugin["plugin"], str(plugin["weight"]), *map(_score, scores)]
        for plugin, *scores in zip(decision["plugins"] or (), *(node["scores"] for node in best), strict=True)
        if any(map(any, scores))  # most plugins give all nodes 0
    ]
    if plugins:
        lines += ["", *table_lines([["plugin", "weight", *(node["node"] for node in best)], *plugins])]
    elif rows and decision["plugins"] is None:
        lines += ["", "the scores by plugin are not kept: too many pods were placed at once"]
    rejected = [[str(one["nodes"]), one["plugins"]] for one in decision["rejected"]]
    return lines + (["", *table_lines([["rejected", "by one of"], *rejected])] if rejected else [])
