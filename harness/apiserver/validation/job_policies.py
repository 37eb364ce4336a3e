"""Rules of a Job about indexes, failures and success; follows `validateJobSpec` of `pkg/apis/batch/validation`."""

import re
from typing import Final

from seatrial.harness.apiserver.field_errors import (
    Cause,
    Causes,
    duplicate,
    invalid,
    quoted,
    required,
    too_long,
    too_many,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, check_prefixed_path, qualified
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE

_MAX_INDEXES: Final = 100_000  # more than that only with lower limits for the rest
_MAX_OF_MANY_INDEXES: Final = 10_000
_MAX_RULES: Final = 20
_MAX_CODES: Final = 255
_MAX_SUCCEEDED: Final = 64 * 1024
_MAX_MANAGED_BY: Final = 63
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_INDEXED: Final = "requires indexed completion mode"


def check_job_policies(spec: Object, path: str, causes: Causes) -> None:
    """Check the fields of a Job's spec whose rules depend on each other."""
    mode = spec.get("completionMode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("managedBy") is not None:
        check_prefixed_path(spec["managedBy"], f"{path}.managedBy", causes)
        if len(spec["managedBy"].encode()) > _MAX_MANAGED_BY:
            causes.append(too_long(f"{path}.managedBy", _MAX_MANAGED_BY))
    if mode == "Indexed":
        _check_indexes(spec, path, causes)
    elif mode in {None, "NonIndexed"}:
        fields = [field for field in ("backoffLimitPerIndex", "maxFailedIndexes") if spec.get(field) is not None]
        causes.extend(invalid(f"{path}.{field}", spec[field], _INDEXED) for field in fields)
    else:
        causes.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if spec.get("podFailurePolicy") is not None:
        _check_failure_policy(spec, f"{path}.podFailurePolicy.rules", causes)
    if spec.get("successPolicy") is not None:
        if mode == "Indexed":
            _check_success_policy(spec, f"{path}.successPolicy.rules", causes)
        else:
            causes.append(invalid(f"{path}.successPolicy", spec["successPolicy"], _INDEXED))
    replacement = spec.get("podReplacementPolicy")
    supported = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if replacement is not None and replacement not in supported:
        causes.append(unsupported(f"{path}.podReplacementPolicy", replacement, supported))


def _check_indexes(spec: Object, path: str, causes: Causes) -> None:
    count, parallelism, failed = (spec.get(field) for field in ("completions", "parallelism", "maxFailedIndexes"))

    def limit(field: str, value: int | None, most: int, why: str = "") -> None:
        if value is not None and value > most:
            causes.append(invalid(f"{path}.{field}", value, f"must be less than or equal to {most}{why}"))

    if count is None:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    limit("parallelism", parallelism, _MAX_INDEXES, " when completion mode is Indexed")
    if count is not None and failed is not None and failed > count:
        causes.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    limit("maxFailedIndexes", failed, _MAX_INDEXES)
    if (count or 0) > _MAX_INDEXES and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            problem = f"must be specified when completions is above {_MAX_INDEXES}"
            causes.append(required(f"{path}.maxFailedIndexes", problem))
        why = f" when completions are above {_MAX_INDEXES} and used with backoff limit per index"
        limit("parallelism", parallelism, _MAX_OF_MANY_INDEXES, why)
        limit("maxFailedIndexes", failed, _MAX_OF_MANY_INDEXES, why)


def _check_choice(value: str | None, choices: tuple[str, ...], path: str, causes: Causes) -> None:
    if not value:
        causes.append(required(path, f"valid values: [{' '.join(map(quoted, choices))}]"))
    elif value not in choices:
        causes.append(unsupported(path, value, choices))


def _check_failure_policy(spec: Object, path: str, causes: Causes) -> None:
    rules, pod = spec["podFailurePolicy"].get("rules") or (), (spec.get("template") or {}).get("spec") or {}
    names = {container.get("name") for part in ("containers", "initContainers") for container in pod.get(part) or ()}
    if len(rules) > _MAX_RULES:
        causes.append(too_many(path, len(rules), _MAX_RULES))
    for index, rule in enumerate(rules):
        own, codes, conditions = f"{path}[{index}]", rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        _check_choice(rule.get("action"), _ACTIONS, f"{own}.action", causes)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            causes.append(invalid(f"{own}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"))
        if codes is not None:
            _check_codes(codes, names, f"{own}.onExitCodes", causes)
        if len(conditions) > _MAX_RULES:
            causes.append(too_many(f"{own}.onPodConditions", len(conditions), _MAX_RULES))
        for at, condition in enumerate(conditions):
            place, kind = f"{own}.onPodConditions[{at}]", condition.get("type") or ""
            causes.extend(invalid(f"{place}.type", kind, problem) for problem in qualified(kind))
            _check_choice(condition.get("status"), _STATUSES, f"{place}.status", causes)
        if (codes is None) is not bool(conditions):
            which = "one of" if codes is None else "both"
            what = "is required" if codes is None else "is not supported"
            problem = f"specifying {which} OnExitCodes and OnPodConditions {what}"
            causes.append(Cause(own, "FieldValueInvalid", f"Invalid value: {problem}"))


def _check_codes(codes: Object, names: set[str | None], path: str, causes: Causes) -> None:
    _check_choice(codes.get("operator"), _OPERATORS, f"{path}.operator", causes)
    if codes.get("containerName") is not None and codes["containerName"] not in names:
        problem = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", codes["containerName"], problem))
    values, own = codes.get("values") or [], f"{path}.values"
    if not values:
        causes.append(invalid(own, values, "at least one value is required"))
    if len(values) > _MAX_CODES:
        causes.append(too_many(own, len(values), _MAX_CODES))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if value == 0 and codes.get("operator") == "In":
            causes.append(invalid(f"{own}[{index}]", 0, "must not be 0 for the In operator"))
        if value in seen:
            causes.append(duplicate(f"{own}[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        causes.append(invalid(own, values, "must be ordered"))


def _check_success_policy(spec: Object, path: str, causes: Causes) -> None:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions") or 0
    if not rules:
        causes.append(required(path, "at least one rules must be specified when the successPolicy is specified"))
    if len(rules) > _MAX_RULES:
        causes.append(too_many(path, len(rules), _MAX_RULES))
    for index, rule in enumerate(rules):
        own, count, indexes = f"{path}[{index}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            causes.append(required(own, "at least one of succeededCount or succeededIndexes must be specified"))
        total = 0
        if indexes is not None:
            if len(indexes.encode()) > _MAX_SUCCEEDED:
                causes.append(too_long(f"{own}.succeededIndexes", _MAX_SUCCEEDED))
            try:
                total = _count_indexes(indexes, completions)
            except ValueError as error:
                problem = f"error parsing succeededIndexes: {error}"
                causes.append(invalid(f"{own}.succeededIndexes", indexes, problem))
        if count is None:
            continue
        own = f"{own}.succeededCount"
        if count < 0:
            causes.append(invalid(own, count, NOT_NEGATIVE))
        if count > completions:
            problem = f"must be less than or equal to {completions} (the number of specified completions)"
            causes.append(invalid(own, count, problem))
        if indexes is not None and count > total:
            what = "the number of indexes in the specified succeededIndexes field"
            causes.append(invalid(own, count, f"must be less than or equal to {total} ({what})"))


def _count_indexes(text: str, completions: int) -> int:
    """The number of indexes in a list of them, as in `0,2-4`.

    Raises:
        ValueError: the list is malformed, not ascending, or has an index that the Job does not have.
    """
    last, total = -1, 0
    for interval in text.split(",") if text else ():
        if interval.count("-") > 1:
            why = "violates the requirement that an index interval can have at most two parts separated by '-'"
            raise ValueError(f"the fragment {quoted(interval)} {why}")
        limits = []
        for part in interval.split("-"):
            if not re.fullmatch(r"\+?[0-9]{1,18}", part):
                raise ValueError(f"cannot convert string to integer for index: {quoted(part)}")
            limits.append(int(part))
            if limits[-1] >= completions:
                raise ValueError(f"too large index: {quoted(part)}")
        first, end = limits[0], limits[-1]
        previous = first if len(limits) > 1 and first >= end else last
        if previous >= first:
            raise ValueError(
                f"non-increasing order, previous: {previous}, current: {end if previous == first else first}"
            )
        total, last = total + end - first + 1, end
    return total
