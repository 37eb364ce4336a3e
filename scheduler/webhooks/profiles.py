"""ClusterColocationProfiles: what new pods get by the labels of their namespace and their own (W-1 to W-8).

Follows Koordinator's pkg/webhook/pod/mutating/cluster_colocation_profile.go and extended_resource_spec.go. Pods are
manifests, as in a review; arguments are not changed.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from seatrial.scheduler.api.colocation import (
    EXTENDED_RESOURCE_SPEC,
    SKIP_RESOURCES,
    ClusterColocationProfile,
    ProfileSpec,
)
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import CPU, milli
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.api.workloads import Namespace, PriorityClass
from seatrial.scheduler.pods.priority import EXTENDED_RESOURCES, class_with_default
from seatrial.scheduler.pods.profiles import Manifest, ProfileError, patched, thrown, with_words
from seatrial.scheduler.pods.selectors import selector_matches


class Profiles:
    """Knows the profiles, and the namespaces and priority classes that they name."""

    def __init__(self, dice: Random) -> None:
        """`dice` decide which pods get a profile with a probability."""
        self._dice = dice
        self.profiles: dict[str, ClusterColocationProfile] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.priority_classes: dict[str, PriorityClass] = {}

    def applied(self, pod: Manifest, namespace: str) -> dict[str, Any]:
        """The pod with all matching profiles, in the order of their names, and with its amounts translated.

        Raises:
            ProfileError: a matching profile cannot be applied.
            QuantityError: an amount is not a quantity.
        """
        changed = dict(pod)
        matching = list(self._matching(pod, namespace))
        for profile in matching:
            if thrown(profile, self._dice):
                changed = self._with(changed, profile.spec)
        if matching and not any(SKIP_RESOURCES in profile.metadata.annotations for profile in matching):
            changed = translated(changed)
        return changed

    def _matching(self, pod: Manifest, namespace: str) -> Iterator[ClusterColocationProfile]:
        labels = dict((pod.get("metadata") or {}).get("labels") or {})
        for _, profile in sorted(self.profiles.items()):
            namespace_selector = profile.spec.namespace_selector
            if namespace_selector is not None:
                if namespace not in self.namespaces:
                    raise ProfileError(f'namespaces "{namespace}" not found')
                if not selector_matches(namespace_selector, self.namespaces[namespace].metadata.labels):
                    continue
            if profile.spec.selector is None or selector_matches(profile.spec.selector, labels):
                yield profile

    def _with(self, pod: Manifest, profile_spec: ProfileSpec) -> dict[str, Any]:
        """The pod with one profile."""
        changed = with_words(pod, profile_spec)
        spec = dict(pod.get("spec") or {})
        if profile_spec.scheduler_name:
            spec["schedulerName"] = profile_spec.scheduler_name
        if profile_spec.priority_class_name:
            priority_class = self.priority_classes.get(profile_spec.priority_class_name)
            if priority_class is None:
                raise ProfileError(f'priorityclasses.scheduling.k8s.io "{profile_spec.priority_class_name}" not found')
            spec["priorityClassName"], spec["priority"] = profile_spec.priority_class_name, priority_class.value
            spec["preemptionPolicy"] = priority_class.preemption_policy
        return patched({**changed, "spec": spec}, profile_spec)


def translated(pod: Manifest) -> dict[str, Any]:
    """The pod with batch or mid resources in the place of cpu and memory if it is of such a class (W-6, W-7).

    Raises:
        QuantityError: an amount of cpu is not a quantity.
    """
    read = msgspec.convert({"metadata": pod.get("metadata") or {}, "spec": pod.get("spec") or {}}, Pod)
    names = EXTENDED_RESOURCES.get(class_with_default(read.metadata.labels, read.spec))
    if names is None:
        return dict(pod)
    spec = dict(pod.get("spec") or {})
    for part in ("initContainers", "containers"):
        if spec.get(part):
            spec[part] = [_container(each, names) for each in spec[part]]
    if spec.get("overhead"):
        spec["overhead"] = _renamed(spec["overhead"], names)
    return {**pod, "spec": spec}


def _container(container: Manifest, names: Mapping[str, str]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        if resources.get(part):
            resources[part] = _renamed(resources[part], names)
    limits = {name: value for name, value in (resources.get("limits") or {}).items() if name in names.values()}
    if limits:
        resources["requests"] = limits | (resources.get("requests") or {})
    return {**container, "resources": resources} if resources else dict(container)


def _renamed(amounts: Manifest, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        names.get(name, name): str(milli(value)) if name == CPU and name in names else value
        for name, value in amounts.items()
    }


def with_resource_spec(pod: Manifest) -> dict[str, Any]:
    """The pod with the annotation of its containers' batch resources, which the node's agent reads (W-8)."""
    containers: dict[str, Any] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        amounts = {
            part: {name: entry[name] for name in (BATCH_CPU, BATCH_MEMORY) if name in entry}
            for part in ("limits", "requests")
            if (entry := (container.get("resources") or {}).get(part) or {})
        }
        if any(amounts.values()):
            containers[container.get("name", "")] = {part: amount for part, amount in amounts.items() if amount}
    metadata = dict(pod.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    written = {"containers": containers}
    if not containers or _read(annotations.get(EXTENDED_RESOURCE_SPEC, "")) == written:
        return dict(pod)
    annotations[EXTENDED_RESOURCE_SPEC] = to_json(written).decode()
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _read(text: str) -> object:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None
