"""Printers of RBAC, certificates, admission, API services and flow control."""

from collections.abc import Callable

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Cells,
    Column,
    Object,
    Printer,
    age_of,
    condition,
    name_of,
    number,
    part,
    text,
    wide,
)
from seatrial.harness.apiserver.printers.durations import created_at, human_duration


def _binding(obj: Object, now: float) -> Cells:
    role = part(obj, "roleRef")
    who: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind in who:
            who[kind].append(f"{subject.get('namespace', '')}/{name}" if kind == "ServiceAccount" else name)
    return [
        name_of(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_of(obj, now),
        *(", ".join(names) for names in who.values()),
    ]


ROLE_BINDINGS = Printer(
    (
        NAME,
        text("Role", "The role that is given."),
        AGE,
        wide("Users", "The users who have it."),
        wide("Groups", "The groups that have it."),
        wide("ServiceAccounts", "The service accounts that have it."),
    ),
    _binding,
)


def _signing_status(obj: Object) -> str:
    status = part(obj, "status")
    types = {entry.get("type") for entry in status.get("conditions") or ()}
    words = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        words.append("Failed")
    if status.get("certificate"):
        words.append("Issued")
    return ",".join(words)


def _signing_request(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, now),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        NONE if seconds is None else human_duration(seconds),
        _signing_status(obj),
    ]


CERTIFICATE_SIGNING_REQUESTS = Printer(
    (
        NAME,
        AGE,
        text("SignerName", "The name of the signer."),
        text("Requestor", "The user who created the request."),
        text("RequestedDuration", "The requested validity of the certificate."),
        text("Condition", "The state of the request."),
    ),
    _signing_request,
)

WEBHOOK_CONFIGURATIONS = Printer(
    (NAME, number("Webhooks", "How many webhooks it has."), AGE),
    lambda o, now: [name_of(o), len(o.get("webhooks") or ()), age_of(o, now)],
)


def _policy(rules: str) -> Callable[[Object, float], Cells]:
    def cells(obj: Object, now: float) -> Cells:
        spec = part(obj, "spec")
        kind = spec.get("paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
        return [name_of(obj), len(spec.get(rules) or ()), shown, age_of(obj, now)]

    return cells


_PARAM_KIND = text("ParamKind", "The kind of object that holds the policy's parameters.")
VALIDATING_POLICIES = Printer(
    (NAME, number("Validations", "How many rules the policy has."), _PARAM_KIND, AGE), _policy("validations")
)
MUTATING_POLICIES = Printer(
    (NAME, number("Mutations", "How many changes the policy makes."), _PARAM_KIND, AGE), _policy("mutations")
)


def _policy_binding(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    param, shown = part(spec, "paramRef"), UNSET
    if param.get("name"):
        shown = f"{param.get('namespace') or '*'}/{param['name']}"
    return [name_of(obj), spec.get("policyName", ""), shown, age_of(obj, now)]


POLICY_BINDINGS = Printer(
    (NAME, text("PolicyName", "The policy that is bound."), text("ParamRef", "The policy's parameters."), AGE),
    _policy_binding,
)


def _api_service(obj: Object, now: float) -> Cells:
    service, available = part(obj, "spec", "service"), condition(obj, "Available")
    status = "Unknown"
    if available is not None:
        status, reason = available.get("status", ""), available.get("reason")
        if status != "True" and reason:
            status = f"{status} ({reason})"
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name_of(obj), where, status, age_of(obj, now)]


API_SERVICES = Printer(
    (
        NAME,
        text("Service", "The service that serves the group and version."),
        text("Available", "Whether it answers."),
        AGE,
    ),
    _api_service,
)


def _definition(obj: Object, _now: float) -> Cells:
    spec, names = part(obj, "spec"), part(obj, "spec", "names")
    served = [row for row in spec.get("versions") or () if row.get("served")]
    established = condition(obj, "Established")
    return [
        name_of(obj),
        spec.get("scope", ""),
        ",".join(sorted(f"{row['name']}{'(storage)' if row.get('storage') else ''}" for row in served)),
        created_at(obj["metadata"].get("creationTimestamp")),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        established is not None and established.get("status") == "True",
    ]


DEFINITIONS = Printer(
    (
        NAME,
        text("Scope", "Whether its objects have namespaces."),
        text("Versions", "The versions that are served."),
        Column("Created At", "When the object was created.", "date"),
        wide("Group", "The API group."),
        wide("Kind", "The kind of its objects."),
        wide("ShortNames", "Short names."),
        Column("Established", "Whether its objects are served.", "boolean", 1),
    ),
    _definition,
)


def _flow_schema(obj: Object, now: float) -> Cells:
    spec, dangling = part(obj, "spec"), condition(obj, "Dangling")
    return [
        name_of(obj),
        part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        part(spec, "distinguisherMethod").get("type", NONE),
        age_of(obj, now),
        "?" if dangling is None else dangling.get("status", ""),
    ]


FLOW_SCHEMAS = Printer(
    (
        NAME,
        text("PriorityLevel", "The priority level that requests are sent to."),
        text("MatchingPrecedence", "The lowest number is tried first."),
        text("DistinguisherMethod", "How flows are distinguished."),
        AGE,
        text("MissingPL", "Whether the priority level does not exist."),
    ),
    _flow_schema,
)


def _priority_level(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    limited = part(spec, "limited")
    queues = part(limited, "limitResponse", "queuing")
    return [
        name_of(obj),
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NONE),
        queues.get("queues", NONE),
        queues.get("handSize", NONE),
        queues.get("queueLengthLimit", NONE),
        age_of(obj, now),
    ]


PRIORITY_LEVELS = Printer(
    (
        NAME,
        text("Type", "Limited or Exempt."),
        text("NominalConcurrencyShares", "The level's share of the server's seats."),
        text("Queues", "How many queues there are."),
        text("HandSize", "How many queues a flow may use."),
        text("QueueLengthLimit", "How many requests may wait in a queue."),
        AGE,
    ),
    _priority_level,
)
