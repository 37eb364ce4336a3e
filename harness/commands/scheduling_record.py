"""What the API server has on a pod's scheduling: conditions, events, and ScheduleExplanation objects.

Any scheduler writes conditions and events. ScheduleExplanation is a kind of Koordinator's; where a component fills it
in, it is the most complete account.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.transport import Request

EXPLANATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/scheduleexplanations"
REASONS = frozenset({"Scheduled", "FailedScheduling", "Preempted", "Evicted", "TaintManagerEviction"})

Record = dict[str, Any]


def record_of(kubeconfig: Path, namespace: str, name: str) -> Record:
    """Read the pod's scheduling record: `pod`, `node`, `scheduler`, `conditions`, `events`, `explanations`.

    Events are those about scheduling, oldest first; explanations are the `status` of objects that ask about this pod.

    Raises:
        UsageError: there is no such pod, or the kubeconfig cannot be used.
        ClusterError: the server does not answer.
        ApiRefused: it refuses.
    """
    api = RemoteTransport(load_access(kubeconfig), PumpedClock())
    where = f"/api/v1/namespaces/{quote(namespace, safe='')}"
    response = api.call(Request("GET", f"{where}/pods/{quote(name, safe='')}"))
    if response.code == 404:
        raise UsageError(f"explain: there is no pod {name!r} in namespace {namespace!r}")
    pod = orjson.loads(accepted(response, f"read pod {namespace}/{name}").body)
    uid = pod["metadata"]["uid"]
    query = urlencode({"fieldSelector": f"involvedObject.uid={uid}"})
    events = orjson.loads(accepted(api.call(Request("GET", f"{where}/events?{query}")), "list events").body)["items"]
    events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    answer = api.call(Request("GET", EXPLANATIONS))
    explanations = orjson.loads(answer.body)["items"] if answer.ok else []  # the kind does not exist there
    key = f"{namespace}/{name}"
    status = pod.get("status") or {}
    return {
        "pod": {"namespace": namespace, "name": name, "uid": uid},
        "node": pod["spec"].get("nodeName", ""),
        "nominated": status.get("nominatedNodeName", ""),
        "scheduler": pod["spec"].get("schedulerName", ""),
        "gates": [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()],
        "conditions": [
            {field: condition.get(field, "") for field in ("type", "status", "reason", "message")}
            for condition in status.get("conditions") or ()
            if condition["type"] in {"PodScheduled", "DisruptionTarget"}
        ],
        "events": [
            {"reason": event.get("reason", ""), "message": event.get("message", ""), "count": _count(event)}
            for event in events
            if event.get("reason") in REASONS
        ],
        "explanations": [
            explanation["status"]
            for explanation in explanations
            if (explanation.get("spec") or {}).get("questionObjectKey") == key and explanation.get("status")
        ],
    }


def _count(event: Record) -> int:
    """How often the event occurred."""
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def lines_of(record: Record) -> list[str]:
    """What to print of a record."""
    key = f"{record['pod']['namespace']}/{record['pod']['name']}"
    lines = [f"{key}: {'on node ' + record['node'] if record['node'] else 'on no node'}, by the API server"]
    if not record["node"]:
        lines.append(f"  for scheduler {record['scheduler']}")
        if record["gates"]:
            lines.append(f"  held by scheduling gates {', '.join(record['gates'])}")
        if record["nominated"]:
            lines.append(f"  nominated for node {record['nominated']}, where victims are terminating")
    lines += [
        f"  {condition['type']}={condition['status']} {condition['reason']}: {condition['message']}".rstrip(": ")
        for condition in record["conditions"]
        if condition["reason"] or condition["message"]
    ]
    for event in record["events"]:
        often = f" ({event['count']} times)" if event["count"] > 1 else ""
        lines += [f"  event {event['reason']}: {event['message']}{often}"]
    lines += [
        "  explanation: "
        + (explanation.get("failedMessage") or ("schedulable" if explanation.get("schedulable") else "none yet"))
        for explanation in record["explanations"]
    ]
    if len(lines) == 1 or (not record["node"] and not record["conditions"] and not record["events"]):
        lines.append("  no conditions and no events about scheduling; check that this scheduler is running")
    return lines
