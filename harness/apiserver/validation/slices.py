"""Validation of ResourceSlices and DeviceTaintRules (`pkg/apis/resource/validation`)."""

import re
from typing import Any, Final

from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, dns_label, qualified, subdomain
from seatrial.harness.apiserver.validation.placement import check_node_selector
from seatrial.harness.apiserver.validation.resources import POSITIVE

_MAX_DEVICES: Final = 128
_MAX_ADVANCED: Final = 64  # where a device has taints or takes counters
_MAX_VALUES, _MAX_TAINTS, _MAX_SETS, _MAX_CONSUMED, _MAX_CONDITIONS = 32, 16, 8, 2, 4
_EFFECTS: Final = ("None", "NoExecute", "NoSchedule")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_KINDS: Final = ("int", "bool", "string", "version")
_MAX_DRIVER, _MAX_POOL = 63, 253  # bytes
_LONGEST: Final = 64  # bytes of a value
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)


def check_slice(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ResourceSlice to `causes`."""
    spec = obj.get("spec") or {}
    driver, pool = spec.get("driver") or "", spec.get("pool") or {}
    if not driver:
        causes.append(required("spec.driver"))
    else:
        if len(driver.encode()) > _MAX_DRIVER:
            causes.append(too_long("spec.driver", _MAX_DRIVER))
        causes.extend(invalid("spec.driver", driver, problem) for problem in subdomain(driver.lower()))
    _check_pool(pool.get("name") or "", causes)
    if (pool.get("resourceSliceCount") or 0) <= 0:
        causes.append(invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, POSITIVE))
    if (pool.get("generation") or 0) < 0:
        problem = "must be greater than or equal to 0"
        causes.append(invalid("spec.pool.generation", pool["generation"], problem))
    if old is not None:
        before = old.get("spec") or {}
        for field in ("driver", "nodeName"):
            causes.extend(immutable(f"spec.{field}", spec.get(field), before.get(field)))
        causes.extend(immutable("spec.pool.name", pool.get("name"), (before.get("pool") or {}).get("name")))
    _check_place(spec, "spec", _PLACES, causes)
    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and counters:
        causes.append(invalid("spec", None, "only one of `sharedCounters` or `devices` is allowed"))
    advanced = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    most = _MAX_ADVANCED if advanced else _MAX_DEVICES
    if len(devices) > most:
        causes.append(too_many("spec.devices", len(devices), most))
    _check_names(devices[:most], "spec.devices", causes)
    for index, device in enumerate(devices[:most]):
        _check_device(device, f"spec.devices[{index}]", bool(spec.get("perDeviceNodeSelection")), causes)
    if len(counters) > _MAX_SETS:
        causes.append(too_many("spec.sharedCounters", len(counters), _MAX_SETS))
    _check_names(counters[:_MAX_SETS], "spec.sharedCounters", causes)


def _check_pool(name: str, causes: Causes) -> None:
    if not name:
        causes.append(required("spec.pool.name"))
        return
    if len(name) > _MAX_POOL:
        causes.append(too_long("spec.pool.name", _MAX_POOL))
    for part in name.split("/"):
        causes.extend(invalid("spec.pool.name", part, problem) for problem in subdomain(part))


def _check_place(spec: Object, path: str, fields: tuple[str, ...], causes: Causes) -> None:
    matches = [field for field in fields if spec.get(field)]
    listed = ", ".join(f"`{field}`" for field in fields)
    if not matches:
        causes.append(required(path, f"exactly one of {listed} is required"))
    elif len(matches) > 1:
        causes.append(invalid(path, None, f"exactly one of {listed} is required, but multiple fields are set"))
    if selector := spec.get("nodeSelector"):
        check_node_selector(selector, f"{path}.nodeSelector", causes)
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            problem = "must have exactly one node selector term"
            causes.append(invalid(f"{path}.nodeSelector.nodeSelectorTerms", terms, problem))


def _check_names(entries: list[Object], path: str, causes: Causes) -> None:
    names: set[str] = set()
    for index, entry in enumerate(entries):
        name = entry.get("name") or ""
        causes.extend(invalid(f"{path}[{index}].name", name, problem) for problem in dns_label(name))
        if name in names:
            causes.append(duplicate(f"{path}[{index}].name", name))
        names.add(name)


def _check_device(device: Object, path: str, per_device: bool, causes: Causes) -> None:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MAX_VALUES:
        problem = f"the total number of attributes and capacities must not exceed {_MAX_VALUES}"
        causes.append(invalid(path, len(attributes) + len(capacity), problem))
        return
    for name, value in attributes.items():
        own = f"{path}.attributes[{name}]"
        causes.extend(invalid(own, name, problem) for problem in qualified(name))
        _check_value(value or {}, own, causes)
    for name, entry in capacity.items():
        own = f"{path}.capacity[{name}]"
        causes.extend(invalid(own, name, problem) for problem in qualified(name))
        _check_policy(entry or {}, bool(device.get("allowMultipleAllocations")), f"{own}.requestPolicy", causes)
    consumed = device.get("consumesCounters") or []
    if len(consumed) > _MAX_CONSUMED:
        causes.append(too_many(f"{path}.consumesCounters", len(consumed), _MAX_CONSUMED))
    taints = device.get("taints") or []
    if len(taints) > _MAX_TAINTS:
        causes.append(too_many(f"{path}.taints", len(taints), _MAX_TAINTS))
    for index, taint in enumerate(taints[:_MAX_TAINTS]):
        _check_taint(taint, f"{path}.taints[{index}]", causes)
    _check_conditions(device, path, causes)
    if device.get("nodeSelector"):
        check_node_selector(device["nodeSelector"], f"{path}.nodeSelector", causes)
    own_place = [field for field in _PLACES[:3] if device.get(field)]
    if per_device and len(own_place) != 1:
        listed = "`nodeName`, `nodeSelector`, or `allNodes`"
        when = "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        causes.append(required(path, f"exactly one of {listed} {when}"))
    elif own_place and not per_device:
        listed = "`nodeName`, `nodeSelector` and `allNodes`"
        when = "can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        causes.append(invalid(path, None, f"{listed} {when}"))


def _check_value(value: Object, path: str, causes: Causes) -> None:
    kinds = [kind for kind in _KINDS if value.get(kind) is not None]
    if len(kinds) != 1:
        causes.append(invalid(path, value, "exactly one value must be specified"))
        return
    text = value[kinds[0]]
    if isinstance(text, str) and len(text.encode()) > _LONGEST:
        causes.append(invalid(f"{path}.{kinds[0]}", text, f"may not be more than {_LONGEST} bytes"))
    if kinds[0] == "version" and _VERSION.fullmatch(text) is None:
        problem = "must be a string compatible with semver.org spec 2.0.0"
        causes.append(invalid(f"{path}.version", text, problem))


def _check_policy(entry: Object, shareable: bool, path: str, causes: Causes) -> None:
    policy = entry.get("requestPolicy")
    if policy is None:
        return
    if not shareable:
        causes.append(forbidden(path, "allowMultipleAllocations must be true"))
    if policy.get("validValues") and policy.get("validRange"):
        both = 'cannot specify "validValues" and "validRange" at the same time'
        causes.append(forbidden(path, f"exactly one policy can be specified, {both}"))
    if (policy.get("validValues") or policy.get("validRange")) and policy.get("default") is None:
        causes.append(required(f"{path}.default"))
    if policy.get("validRange") is not None and policy["validRange"].get("min") is None:
        causes.append(required(f"{path}.validRange.min"))


def _check_conditions(device: Object, path: str, causes: Causes) -> None:
    ready, failed = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    for field, names in (("bindingConditions", ready), ("bindingFailureConditions", failed)):
        if len(names) > _MAX_CONDITIONS:
            causes.append(too_many(f"{path}.{field}", len(names), _MAX_CONDITIONS))
    if failed and not ready:
        problem = "bindingConditions are required to use bindingFailureConditions"
        causes.append(invalid(f"{path}.bindingConditions", ready, problem))
    if ready and not failed:
        problem = "bindingFailureConditions are required to use bindingConditions"
        causes.append(invalid(f"{path}.bindingFailureConditions", failed, problem))


def check_taint_rule(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a DeviceTaintRule to `causes`."""
    _check_taint((obj.get("spec") or {}).get("taint") or {}, "spec.taint", causes)


def _check_taint(taint: Any, path: str, causes: Causes) -> None:
    if not taint.get("key"):
        causes.append(required(f"{path}.key"))
    else:
        causes.extend(invalid(f"{path}.key", taint["key"], problem) for problem in qualified(taint["key"]))
    if not taint.get("effect"):
        causes.append(required(f"{path}.effect"))
    elif taint["effect"] not in _EFFECTS:
        causes.append(unsupported(f"{path}.effect", taint["effect"], _EFFECTS))
