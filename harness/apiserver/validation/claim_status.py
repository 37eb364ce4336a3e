"""Validation of a ResourceClaim's status (`ValidateResourceClaimStatusUpdate` of `pkg/apis/resource/validation`)."""

from typing import Any, Final

from seatrial.harness.apiserver.field_errors import Causes, forbidden, immutable, invalid, required, too_many
from seatrial.harness.apiserver.names import Object, dns_label, subdomain
from seatrial.harness.apiserver.validation.devices import NO_REQUEST
from seatrial.harness.apiserver.validation.placement import check_node_selector

_MAX_RESERVED: Final = 256
_MAX_RESULTS: Final = 32


def check_claim_status(obj: Object, old: Object, causes: Causes) -> None:
    """Append what is invalid in the status, given the stored object, to `causes`."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    allocation, users = status.get("allocation"), status.get("reservedFor") or []
    if before.get("allocation") and allocation:
        causes.extend(immutable("status.allocation", allocation, before["allocation"]))
    elif allocation:
        _check_allocation(allocation, obj.get("spec") or {}, causes)
    _check_users(obj, users, before.get("reservedFor") or [], allocated=bool(allocation), causes=causes)
    allocated = _allocated(status)
    for index, device in enumerate(status.get("devices") or ()):
        if _device(device) not in allocated:
            path = f"status.devices[{index}]"
            causes.append(invalid(path, "/".join(_device(device)[:3]), "must be an allocated device in the claim"))


def _check_allocation(allocation: Object, spec: Object, causes: Causes) -> None:
    results = (allocation.get("devices") or {}).get("results") or []
    if len(results) > _MAX_RESULTS:
        causes.append(too_many("status.allocation.devices.results", len(results), _MAX_RESULTS))
    names = set[str]()
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name") or ""
        alternatives = request.get("firstAvailable") or ()
        names |= {name, *(f"{name}/{alternative.get('name') or ''}" for alternative in alternatives)}
    for index, result in enumerate(results[:_MAX_RESULTS]):
        path = f"status.allocation.devices.results[{index}]"
        if (name := result.get("request") or "") not in names:
            causes.append(invalid(f"{path}.request", name, NO_REQUEST))
        for field, rule in (("driver", subdomain), ("device", dns_label)):
            value = result.get(field) or ""
            causes.extend(invalid(f"{path}.{field}", value, problem) for problem in rule(value))
    if allocation.get("nodeSelector"):
        check_node_selector(allocation["nodeSelector"], "status.allocation.nodeSelector", causes)


def _check_users(obj: Object, users: list[Object], before: list[Object], *, allocated: bool, causes: Causes) -> None:
    path = "status.reservedFor"
    if len(users) > _MAX_RESERVED:
        causes.append(too_many(path, len(users), _MAX_RESERVED))
    for index, user in enumerate(users):
        causes.extend(
            required(f"{path}[{index}].{field}") for field in ("resource", "name", "uid") if not user.get(field)
        )
    if users and not allocated:
        causes.append(forbidden(path, "may not be specified when `allocated` is not set"))
    known = {user.get("uid") for user in before}
    if "deletionTimestamp" in obj["metadata"] and any(user.get("uid") not in known for user in users):
        problem = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        causes.append(forbidden(path, problem))


def _allocated(status: Object) -> set[tuple[Any, ...]]:
    """The devices that the claim has."""
    return {_device(result) for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()}


def _device(entry: Object) -> tuple[Any, ...]:
    return entry.get("driver"), entry.get("pool"), entry.get("device"), entry.get("shareID")


def without_stale_devices(obj: Object, old: Object) -> None:
    """Drop what is said of devices that an update takes from the claim: few clients know the field (DRA-R17)."""
    status = obj.get("status") or {}
    if not status.get("devices"):
        return
    gone = _allocated(old.get("status") or {}) - _allocated(status)
    kept = [device for device in status["devices"] if _device(device) not in gone]
    obj["status"] = {**status, "devices": kept}
    if not kept:
        del obj["status"]["devices"]
