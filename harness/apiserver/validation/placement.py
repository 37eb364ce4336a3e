"""Validation of placement fields: selectors, affinity, tolerations, topology spread, and taints of nodes."""

from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, duplicate, forbidden, invalid, required, unsupported
from seatrial.harness.apiserver.names import Object, check_labels, dns_label, label_value, qualified, subdomain
from seatrial.harness.apiserver.validation.resources import POSITIVE

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_NOT_AN_OPERATOR = "not a valid selector operator"


def check_label_name(name: Any, path: str, causes: Causes) -> None:
    """Append what is wrong with a label's name to `causes`."""
    causes.extend(invalid(path, name or "", problem) for problem in qualified(name or ""))


def check_label_selector(selector: Object, path: str, causes: Causes) -> None:
    """Check the matchLabels and matchExpressions of a LabelSelector."""
    if selector.get("matchLabels"):
        check_labels(selector["matchLabels"], f"{path}.matchLabels", causes)
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        own = f"{path}.matchExpressions[{index}]"
        if not _check_operator(expression, own, causes):
            causes.append(invalid(f"{own}.operator", expression.get("operator") or "", _NOT_AN_OPERATOR))
        check_label_name(expression.get("key"), f"{own}.key", causes)


def _check_operator(expression: Object, path: str, causes: Causes) -> bool:
    """Check an expression with one of the four common operators; return False for any other operator."""
    operator, values = expression.get("operator"), expression.get("values")
    if operator in {"In", "NotIn"}:
        if not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{path}.values", problem))
    else:
        return False
    return True


def check_affinity(affinity: Object, path: str, causes: Causes) -> None:
    """Append what is invalid in a pod's affinity to `causes`."""
    if node := affinity.get("nodeAffinity"):
        own = f"{path}.nodeAffinity"
        if (needed := node.get(_REQUIRED)) is not None:
            check_node_selector(needed, f"{own}.{_REQUIRED}", causes)
        for index, term in enumerate(node.get(_PREFERRED) or ()):
            _check_weight(term, f"{own}.{_PREFERRED}[{index}]", causes)
            _check_node_term(term.get("preference") or {}, f"{own}.{_PREFERRED}[{index}].preference", causes)
    for kind in ("podAffinity", "podAntiAffinity"):
        if pods := affinity.get(kind):
            own = f"{path}.{kind}"
            for index, term in enumerate(pods.get(_REQUIRED) or ()):
                _check_pod_term(term, f"{own}.{_REQUIRED}[{index}]", causes)
            for index, term in enumerate(pods.get(_PREFERRED) or ()):
                _check_weight(term, f"{own}.{_PREFERRED}[{index}]", causes)
                _check_pod_term(
                    term.get("podAffinityTerm") or {}, f"{own}.{_PREFERRED}[{index}].podAffinityTerm", causes
                )


def _check_weight(term: Object, path: str, causes: Causes) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        causes.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def check_node_selector(selector: Object, path: str, causes: Causes) -> None:
    """Append what is invalid in a node selector to `causes`; it needs at least one term."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        causes.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
        return
    for index, term in enumerate(terms):
        _check_node_term(term, f"{path}.nodeSelectorTerms[{index}]", causes, values_too=True)


def _check_node_term(term: Object, path: str, causes: Causes, *, values_too: bool = False) -> None:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        own = f"{path}.matchExpressions[{index}]"
        values = expression.get("values") or ()
        if expression.get("operator") in {"Gt", "Lt"}:
            if len(values) != 1:
                problem = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                causes.append(required(f"{own}.values", problem))
        elif not _check_operator(expression, own, causes):
            causes.append(invalid(f"{own}.operator", expression.get("operator") or "", _NOT_AN_OPERATOR))
        check_label_name(expression.get("key"), f"{own}.key", causes)
        if values_too:
            for at, value in enumerate(values):
                causes.extend(invalid(f"{own}.values[{at}]", value, problem) for problem in label_value(value))
    for index, expression in enumerate(term.get("matchFields") or ()):
        own = f"{path}.matchFields[{index}]"
        if expression.get("operator") not in {"In", "NotIn"}:
            causes.append(invalid(f"{own}.operator", expression.get("operator") or "", _NOT_AN_OPERATOR))
        elif len(expression.get("values") or ()) != 1:
            problem = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            causes.append(required(f"{own}.values", problem))
        if expression.get("key") != "metadata.name":
            causes.append(invalid(f"{own}.key", expression.get("key") or "", "not a valid field selector key"))
        else:
            for at, value in enumerate(expression.get("values") or ()):
                causes.extend(invalid(f"{own}.values[{at}]", value, problem) for problem in subdomain(value))


def _check_pod_term(term: Object, path: str, causes: Causes) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        if term.get(field):
            check_label_selector(term[field], f"{path}.{field}", causes)
    for name in term.get("namespaces") or ():
        causes.extend(invalid(f"{path}.namespace", name, problem) for problem in dns_label(name))
    if not term.get("topologyKey"):
        causes.append(required(f"{path}.topologyKey", "can not be empty"))
    check_label_name(term.get("topologyKey"), f"{path}.topologyKey", causes)


def check_tolerations(tolerations: list[Object], path: str, causes: Causes) -> None:
    """Append what is invalid in a pod's tolerations to `causes`."""
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key"), toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            for problem in qualified(key):
                causes.append(invalid(f"{path}[{index}].key", key, problem))
        elif operator != "Exists":
            problem = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid(f"{path}[{index}].operator", operator, problem))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            problem = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{path}[{index}].effect", effect, problem))
        if operator in {"Equal", ""}:
            if problems := label_value(value):
                causes.append(invalid(f"{path}[{index}].operator", value, ";".join(problems)))
        elif operator == "Exists":
            if value:
                problem = "value must be empty when `operator` is 'Exists'"
                causes.append(invalid(f"{path}[{index}].operator", value, problem))
        else:
            causes.append(unsupported(f"{path}[{index}].operator", operator, ("Equal", "Exists")))
        if effect and effect not in EFFECTS:
            causes.append(unsupported(f"{path}[{index}].effect", effect, EFFECTS))


def check_taints(taints: list[Object], path: str, causes: Causes) -> None:
    """Check the taints of a node; each pair of key and effect must be unique."""
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(taints):
        check_label_name(taint.get("key"), f"{path}[{index}].key", causes)
        if problems := label_value(taint.get("value") or ""):
            causes.append(invalid(f"{path}[{index}].value", taint["value"], ";".join(problems)))
        effect = taint.get("effect")
        if not effect:
            causes.append(required(f"{path}[{index}].effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{path}[{index}].effect", effect, EFFECTS))
        pair = (taint.get("key"), effect)
        if pair in seen:
            cause = duplicate(f"{path}[{index}]", taint)
            causes.append(cause._replace(message=f"{cause.message}: taints must be unique by key and effect pair"))
        seen.add(pair)


def check_spread(constraints: list[Object], path: str, causes: Causes) -> None:
    """Check topology spread constraints; each pair of topologyKey and whenUnsatisfiable must be unique."""
    seen: dict[tuple[Any, Any], int] = {}
    for index, constraint in enumerate(constraints):
        own = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew") or 0, constraint.get("topologyKey")
        if skew <= 0:
            causes.append(invalid(f"{own}.maxSkew", skew, POSITIVE))
        if not key:
            causes.append(required(f"{own}.topologyKey", "can not be empty"))
        mode = constraint.get("whenUnsatisfiable")
        if mode not in _UNSATISFIABLE:
            causes.append(unsupported(f"{own}.whenUnsatisfiable", mode or "", _UNSATISFIABLE))
        if (key, mode) in seen:
            first = f"{path}[{seen[key, mode]}]"
            causes.append(duplicate(f"{first}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {mode}}}"))
        seen.setdefault((key, mode), index)
        if (domains := constraint.get("minDomains")) is not None:
            if domains <= 0:
                causes.append(invalid(f"{own}.minDomains", domains, POSITIVE))
            if mode != "DoNotSchedule":
                problem = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {mode}"
                causes.append(invalid(f"{own}.minDomains", domains, problem))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(field) not in (None, *_POLICIES):
                causes.append(unsupported(f"{own}.{field}", constraint[field], _POLICIES))
        if constraint.get("labelSelector"):
            check_label_selector(constraint["labelSelector"], f"{own}.labelSelector", causes)
        elif constraint.get("matchLabelKeys"):
            causes.append(forbidden(f"{own}.matchLabelKeys", "must not be specified when labelSelector is not set"))
