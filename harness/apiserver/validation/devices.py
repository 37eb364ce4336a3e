"""Validation of ResourceClaims, ResourceClaimTemplates and DeviceClasses; follows `pkg/apis/resource/validation`.

Selectors are compiled, so syntax errors and unknown names are found; types of expressions are not checked.
"""

from functools import lru_cache
from typing import Any

from seatrial.harness.apiserver.cel.device import MAX_COST, selector_cost
from seatrial.harness.apiserver.field_errors import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_found,
    required,
    too_long,
    too_many,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, dns_label, qualified, subdomain
from seatrial.harness.apiserver.validation.resources import POSITIVE, is_extended
from seatrial.harness.apiserver.webhooks.policies import check_expression

_ALLOCATION_MODES = ("All", "ExactCount")
NO_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
_MAX_REQUESTS = _MAX_CONFIGS = _MAX_CONSTRAINTS = _MAX_SELECTORS = 32
_MAX_ALTERNATIVES = 8
_MAX_EXPRESSION = 10 * 1024  # bytes
_VARIABLES = {"device": None}
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_SHOWN_CLAIMS = 16  # names of claims in a message; upstream shows all


def check_resource_claim(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ResourceClaim to `causes`; the spec of `old` may not change."""
    if old is not None:  # what was valid when it was stored may be stored again
        causes.extend(immutable("spec", obj.get("spec"), old.get("spec")))
    else:
        _check_devices((obj.get("spec") or {}).get("devices") or {}, "spec.devices", causes)


def check_resource_claim_template(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ResourceClaimTemplate to `causes`; the spec of `old` may not change."""
    spec = (obj.get("spec") or {}).get("spec") or {}
    if old is not None:
        causes.extend(immutable("spec", obj.get("spec"), old.get("spec")))
    else:
        _check_devices(spec.get("devices") or {}, "spec.spec.devices", causes)


def check_pod_claims(claims: list[Object], path: str, causes: Causes) -> None:
    """Check the `resourceClaims` of a pod."""
    names: set[str] = set()
    for index, claim in enumerate(claims):
        own, name = f"{path}[{index}]", claim.get("name")
        if not name:
            causes.append(required(f"{own}.name"))
        elif name in names:
            causes.append(duplicate(f"{own}.name", name))
        else:
            causes.extend(invalid(f"{own}.name", name, problem) for problem in dns_label(name))
            names.add(name)
        sources = [
            field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None
        ]
        if len(sources) > 1:
            problem = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.append(invalid(own, claim, problem))
        if not sources:
            problem = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid(own, claim, problem))
        for field in sources:
            causes.extend(invalid(f"{own}.{field}", claim[field], problem) for problem in subdomain(claim[field]))


def check_claim_names(claims: list[Object], spec: Object, path: str, causes: Causes) -> None:
    """Check the `resources.claims` of a container of a pod with this spec."""
    names = {claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")}
    detail = f": {', '.join(sorted(names)[:_SHOWN_CLAIMS])}" if names else " which is empty"
    whole, parts, partly = set[str](), set[tuple[str, str]](), set[str]()  # claims of which all or one request is named
    for index, claim in enumerate(claims):
        own, name, request = f"{path}[{index}]", claim.get("name"), claim.get("request") or ""
        if not name:
            causes.append(required(own))
            continue
        if name in whole or (not request and name in partly):
            causes.append(duplicate(own, name))
        elif request:
            causes.extend(invalid(f"{own}.request", request, problem) for problem in dns_label(request))
            if (name, request) in parts:
                causes.append(duplicate(own, f"{name}/{request}"))
            parts.add((name, request))
            partly.add(name)
        if not request:
            whole.add(name)
        if name not in names:
            cause = not_found(own, name)
            message = f"{cause.message}: must be one of the names in pod.spec.resourceClaims{detail}"
            causes.append(cause._replace(message=message))


def check_device_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a DeviceClass to `causes`; selectors that are those of `old` were valid."""
    spec = obj.get("spec") or {}
    if old is None or spec.get("selectors") != (old.get("spec") or {}).get("selectors"):
        _check_selectors(spec.get("selectors") or (), "spec.selectors", causes)
    for index, config in enumerate(_bounded(spec.get("config"), _MAX_CONFIGS, "spec.config", causes)):
        _check_opaque(config, f"spec.config[{index}]", causes)
    resource = spec.get("extendedResourceName")
    if resource is not None and (not is_extended(resource) or qualified(f"requests.{resource}")):
        causes.append(invalid("spec.extendedResourceName", resource, "must be a valid extended resource name"))


def _check_devices(devices: Object, path: str, causes: Causes) -> None:
    names: set[str] = set()
    for index, request in enumerate(_bounded(devices.get("requests"), _MAX_REQUESTS, f"{path}.requests", causes)):
        own, name = f"{path}.requests[{index}]", request.get("name") or ""
        if name in names:
            causes.append(duplicate(own, name))
        names.add(name)
        _check_request(request, name, own, names, causes)
    constraints = _bounded(devices.get("constraints"), _MAX_CONSTRAINTS, f"{path}.constraints", causes)
    for index, constraint in enumerate(constraints):
        own = f"{path}.constraints[{index}]"
        _check_references(constraint.get("requests") or (), names, own, causes)
        field = "matchAttribute" if constraint.get("matchAttribute") is not None else "distinctAttribute"
        attribute = constraint.get(field)
        if attribute is None:
            causes.append(required(own))
        elif "/" not in attribute:
            problem = "a fully qualified name must be a domain and a name separated by a slash"
            causes.append(invalid(f"{own}.{field}", attribute, problem))
        else:
            causes.extend(invalid(f"{own}.{field}", attribute, problem) for problem in qualified(attribute))
    for index, config in enumerate(_bounded(devices.get("config"), _MAX_CONFIGS, f"{path}.config", causes)):
        own = f"{path}.config[{index}]"
        _check_references(config.get("requests") or (), names, own, causes)
        _check_opaque(config, own, causes)


def _check_request(request: Object, name: str, path: str, names: set[str], causes: Causes) -> None:
    causes.extend(invalid(f"{path}.name", name, problem) for problem in dns_label(name))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is not None and alternatives:
        causes.append(invalid(path, None, "exactly one of `exactly` or `firstAvailable` is required"))
    elif exactly is not None:
        _check_exact(exactly, f"{path}.exactly", causes)
    elif not alternatives:
        causes.append(required(path, "exactly one of `exactly` or `firstAvailable` is required"))
    else:
        bounded = _bounded(alternatives, _MAX_ALTERNATIVES, f"{path}.firstAvailable", causes)
        for index, alternative in enumerate(bounded):
            own, called = f"{path}.firstAvailable[{index}]", alternative.get("name") or ""
            causes.extend(invalid(f"{own}.name", called, problem) for problem in dns_label(called))
            if f"{name}/{called}" in names:
                causes.append(duplicate(f"{own}.name", called))
            names.add(f"{name}/{called}")
            _check_exact(alternative, own, causes)


def _check_exact(request: Object, path: str, causes: Causes) -> None:
    name = request.get("deviceClassName") or ""
    if not name:
        causes.append(required(f"{path}.deviceClassName"))
    else:
        causes.extend(invalid(f"{path}.deviceClassName", name, problem) for problem in subdomain(name))
    _check_selectors(request.get("selectors") or (), f"{path}.selectors", causes)
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "ExactCount":
        if count <= 0:
            causes.append(invalid(f"{path}.count", count, POSITIVE))
    elif mode == "All":
        if count:
            problem = f"must not be specified when allocationMode is '{mode}'"
            causes.append(invalid(f"{path}.count", count, problem))
    else:
        causes.append(unsupported(f"{path}.allocationMode", mode, _ALLOCATION_MODES))


def _check_selectors(selectors: Any, path: str, causes: Causes) -> None:
    for index, selector in enumerate(_bounded(selectors, _MAX_SELECTORS, path, causes)):
        own, cel = f"{path}[{index}].cel", selector.get("cel")
        if cel is None:
            causes.append(required(own))
            continue
        expression = cel.get("expression") or ""
        if len(expression.encode()) > _MAX_EXPRESSION:
            causes.append(too_long(f"{own}.expression", _MAX_EXPRESSION))
        elif not expression.strip():
            causes.append(invalid(f"{own}.expression", expression, "must be a CEL expression that returns a boolean"))
        else:
            causes.extend(cause._replace(field=f"{own}.expression") for cause in _compiled(expression))


@lru_cache(maxsize=256)  # the claims of one template have the same selectors
def _compiled(expression: str) -> tuple[Cause, ...]:
    """What is wrong with a selector, for a field that is still to be named."""
    causes: Causes = []
    check_expression(expression, "", _VARIABLES, causes)
    if not causes and selector_cost(expression) > MAX_COST:
        causes.append(forbidden("", "too complex, exceeds cost limit"))
    return tuple(causes)


def _check_references(requests: Any, names: set[str], path: str, causes: Causes) -> None:
    for index, name in enumerate(requests):
        if name not in names:
            causes.append(invalid(f"{path}.requests[{index}]", name, NO_REQUEST))


def _check_opaque(config: Object, path: str, causes: Causes) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        causes.append(required(f"{path}.opaque"))
        return
    driver = opaque.get("driver") or ""
    if not driver:
        causes.append(required(f"{path}.opaque.driver"))
    else:
        causes.extend(invalid(f"{path}.opaque.driver", driver, problem) for problem in subdomain(driver))
    if opaque.get("parameters") is None:
        causes.append(required(f"{path}.opaque.parameters"))


def _bounded(entries: Any, limit: int, path: str, causes: Causes) -> list[Object]:
    result = list(entries or ())
    if len(result) > limit:
        causes.append(too_many(path, len(result), limit))
    return result[:limit]
