"""Printers of priority classes, pod groups, leases, runtime classes and dynamic resource allocation."""

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Object,
    Printer,
    age_of,
    flag,
    name_of,
    number,
    part,
    text,
)

PRIORITY_CLASSES = Printer(
    (
        NAME,
        number("Value", "The priority that pods of the class get."),
        flag("Global-Default", "Whether pods without a class get this one."),
        AGE,
        text("PreemptionPolicy", "Whether pods of the class may preempt others."),
    ),
    lambda o, now: [
        name_of(o),
        o.get("value", 0),
        bool(o.get("globalDefault")),
        age_of(o, now),
        o.get("preemptionPolicy") or "",
    ],
)

LEASES = Printer(
    (NAME, text("Holder", "The holder of the lease."), AGE),
    lambda o, now: [name_of(o), part(o, "spec").get("holderIdentity") or "", age_of(o, now)],
)

RUNTIME_CLASSES = Printer(
    (NAME, text("Handler", "The handler name of the runtime."), AGE),
    lambda o, now: [name_of(o), o.get("handler", ""), age_of(o, now)],
)

NAME_AND_AGE = Printer((NAME, AGE), lambda o, now: [name_of(o), age_of(o, now)])


def _claim_state(claim: Object) -> str:
    status = part(claim, "status")
    deleted = bool(claim["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    return ",".join(states)


RESOURCE_CLAIMS = Printer(
    (NAME, text("State", "Whether the claim is pending, allocated or reserved."), AGE),
    lambda o, now: [name_of(o), _claim_state(o), age_of(o, now)],
)


def _resource_slice(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("nodeName") or "",
        spec.get("driver", ""),
        part(spec, "pool").get("name", ""),
        age_of(obj, now),
    ]


RESOURCE_SLICES = Printer(
    (
        NAME,
        text("Node", "The node that has the devices."),
        text("Driver", "The driver that offers them."),
        text("Pool", "The pool that they belong to."),
        AGE,
    ),
    _resource_slice,
)


def _pod_group(obj: Object, now: float) -> Cells:
    spec, conditions = part(obj, "spec"), part(obj, "status").get("conditions") or ()
    state = "Pending"
    for condition in conditions:
        if condition.get("type") == "PodGroupInitiallyScheduled":
            state = "Scheduled" if condition.get("status") == "True" else "Unschedulable"
    for condition in conditions:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            state = condition.get("reason", "")
    return [
        name_of(obj),
        "Gang" if part(spec, "schedulingPolicy").get("gang") is not None else "Basic",
        part(spec, "workloadRef").get("workloadName") or NONE,
        state,
        age_of(obj, now),
    ]


POD_GROUPS = Printer(
    (
        NAME,
        text("Policy", "Whether pods are scheduled as a gang."),
        text("Workload", "The Workload that has the template of the group."),
        text("Status", "Whether the group was scheduled once."),
        AGE,
    ),
    _pod_group,
)
