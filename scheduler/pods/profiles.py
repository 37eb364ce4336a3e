"""What a ClusterColocationProfile changes of a pod's labels, annotations and other fields (W-3, W-4).

Follows Koordinator's pkg/webhook/pod/mutating/cluster_colocation_profile.go and pkg/controller/colocationprofile. Pods
are manifests; arguments are not changed.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from seatrial.scheduler.api.colocation import ClusterColocationProfile, ProfileSpec
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import QOS_LABEL
from seatrial.scheduler.api.reservation import PRIORITY_LABEL
from seatrial.scheduler.api.wrong_values import shown
from seatrial.scheduler.pods.merging import merged

_ALWAYS = 100  # percent

Manifest = Mapping[str, Any]


class ProfileError(Exception):
    """A profile that matches the pod cannot be applied; the text names it, and what was expected and found."""


def probability_problem(profile: ClusterColocationProfile) -> str:
    """Why its probability is none; "" if it is one."""
    if _percent(profile.spec.probability) is not None:
        return ""
    return (
        f"ClusterColocationProfile {profile.metadata.name}: probability: expected 0 to 100 or a percentage, "
        f"found {shown(str(profile.spec.probability))}"
    )


def thrown(profile: ClusterColocationProfile, dice: Random) -> bool:
    """Whether the dice let a pod have the profile: with p + 1 in 100, as Koordinator's (W-4).

    Raises:
        ProfileError: its probability is none.
    """
    percent = _percent(profile.spec.probability)
    if percent is None:
        raise ProfileError(probability_problem(profile))
    if percent in {0, _ALWAYS}:
        return percent == _ALWAYS
    return dice.randrange(_ALWAYS) <= percent


def _percent(value: int | str | None) -> int | None:
    """A probability in percent; None: it is none."""
    if isinstance(value, str):
        value = integer(value[:-1]) if value.endswith("%") else None
    elif value is None:
        value = _ALWAYS
    return value if value is not None and 0 <= value <= _ALWAYS else None


def with_words(pod: Manifest, profile_spec: ProfileSpec, *, again: bool = False) -> dict[str, Any]:
    """The pod with labels and annotations of a profile, whose parts have the order of W-3.

    `again`: the pod may have them already; a suffix that a label has is not added once more."""
    metadata = dict(pod.get("metadata") or {})
    labels = dict(metadata.get("labels") or {}) | profile_spec.labels
    annotations = dict(metadata.get("annotations") or {}) | profile_spec.annotations
    labels |= {target: labels.get(source, "") for source, target in profile_spec.label_keys_mapping.items()}
    annotations |= {
        target: annotations.get(source, "") for source, target in profile_spec.annotation_keys_mapping.items()
    }
    for key, suffix in profile_spec.label_suffixes.items():
        if key in labels:
            labels[key] = (labels[key].removesuffix(suffix) if again else labels[key]) + suffix
    if profile_spec.qos_class:
        labels[QOS_LABEL] = profile_spec.qos_class
    if profile_spec.koordinator_priority is not None:
        labels[PRIORITY_LABEL] = str(profile_spec.koordinator_priority)
    metadata |= {name: kept for name, kept in (("labels", labels), ("annotations", annotations)) if kept}
    return {**pod, "metadata": metadata}


def patched(pod: Manifest, profile_spec: ProfileSpec) -> dict[str, Any]:
    """The pod with the patch of a profile."""
    return merged(pod, profile_spec.patch) if profile_spec.patch else dict(pod)


def changes(before: Manifest, after: Manifest) -> list[dict[str, Any]]:
    """The JSON patch of a pod's metadata and spec, field by field."""
    patch: list[dict[str, Any]] = []
    for part in ("metadata", "spec"):
        old, new = before.get(part) or {}, after.get(part) or {}
        for name in sorted(old.keys() | new.keys()):
            path = f"/{part}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in new:
                patch.append({"op": "remove", "path": path})
            elif name not in old or old[name] != new[name]:
                patch.append({"op": "add", "path": path, "value": new[name]})
    return patch
