"""Runtime shares of one resource among the quotas of one level.

Follows Koordinator `pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go` and
`scale_minquota_when_over_root_res.go`, rules QUOTA-R15 to QUOTA-R20.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What one quota has of one resource. `floor`: the larger of its scaled min and its guarantee."""

    name: str
    floor: int
    limited: int  # its request, at most its max
    weight: int
    lends: bool = True  # whether the unused part of `floor` goes to siblings


def runtime_shares(total: int, shares: Sequence[Share]) -> dict[str, int]:
    """Divide `total`: each quota gets its request up to its floor; the rest goes by weight to unmet requests.

    The sum exceeds `total` only where the floors alone do. A weight of 0 or less gets nothing of the rest.
    """
    runtime: dict[str, int] = {}
    hungry: list[Share] = []
    for share in shares:
        if share.limited > share.floor:
            runtime[share.name] = share.floor
            if share.weight > 0:
                hungry.append(share)
        else:
            runtime[share.name] = share.limited if share.lends else share.floor
    rest = total - sum(runtime.values())
    while rest > 0 and hungry:
        parts = largest_remainder(rest, {share.name: share.weight for share in hungry})
        rest = 0
        still: list[Share] = []
        for share in hungry:
            reached = runtime[share.name] + parts[share.name]
            if reached >= share.limited:
                rest += reached - share.limited
                reached = share.limited
            else:
                still.append(share)
            runtime[share.name] = reached
        hungry = still
    return runtime


def largest_remainder(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide `total` by weight into integers whose sum is `total`.

    Units left over by rounding down go to the largest remainders, equal ones by name. All weights are more than 0.
    """
    whole = sum(weights.values())
    parts: dict[str, int] = {}
    remainders: list[tuple[int, str]] = []
    left = total
    for name, weight in weights.items():
        part, remainder = divmod(weight * total, whole)
        parts[name] = part
        left -= part
        remainders.append((-remainder, name))
    if left:
        remainders.sort()
        for _, name in remainders[:left]:
            parts[name] += 1
    return parts


def scaled_min(total: int, minimum: int, scaling: int, fixed: int = 0) -> int:
    """A min scaled down to a total that is below the sum of all mins of the level.

    `scaling`: the sum of the mins that are scaled, this one included; `fixed`: the sum of those that are not. Upstream
    computes in floating point; here the result is exact.
    """
    return max((total - fixed) * minimum // scaling, 0) if scaling else 0
