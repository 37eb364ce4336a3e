"""Brings pods that wait for a node in line with ClusterColocationProfiles that came or changed after them (W-10).

Follows Koordinator's pkg/controller/colocationprofile: a profile with the label `controller-managed`, whose selector is
not left out, gives labels, annotations and its patch. Scheduler, priority class and translated amounts stay as the
webhook left them: the API server would refuse their change. Deviations: a suffix that a label has is not added again,
the dice are thrown once for each pod and version of a profile, and all profiles of a pod are one write.
"""

import logging
import math
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.colocation import CONTROLLER_MANAGED, PROFILES_PATH, ClusterColocationProfile
from seatrial.scheduler.api.transport import JSON_PATCH, Request, Response, Transport
from seatrial.scheduler.api.wire import ObjectMeta, Wire, decoder, to_json
from seatrial.scheduler.api.workloads import Namespace
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.pods.profiles import Manifest, changes, patched, probability_problem, thrown, with_words
from seatrial.scheduler.pods.selectors import selector_matches
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

INTERVAL = 30.0  # seconds between rounds
FORCE_AFTER = 300.0  # seconds after which a pod is compared with a profile again
QPS, BURST = 10.0, 100


class _Head(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _Waiting(Wire, frozen=True):
    """A pod without a node, with all of its fields."""

    metadata: ObjectMeta
    manifest: dict[str, Any]


_decode_head = decoder(_Head)


def _decode_pod(data: bytes) -> _Waiting:
    return _Waiting(_decode_head(data).metadata, msgspec.json.decode(data))


class ProfileController:
    """Patches pods of one API server, in rounds."""

    def __init__(self, transport: Transport, clock: Clock, dice: Random, *, by_default: bool = False) -> None:
        """`dice` decide which pods get a profile with a probability. `by_default`: profiles without the label too."""
        self._clock, self._dice, self._by_default = clock, dice, by_default
        self._rest = Rest(transport, clock)
        self._profiles: dict[str, ClusterColocationProfile] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._pods: dict[str, _Waiting] = {}  # by uid
        self._compared: dict[str, dict[tuple[str, str], float]] = {}  # pod → profile and its version → since when
        self._tokens, self._filled = float(BURST), clock.monotonic()
        self._once = Once(log)
        self._next: Timer | None = None
        self._stopped = False
        only = {"fieldSelector": "spec.nodeName="}
        self._informers: list[Informer[Any]] = [
            self._follow(PROFILES_PATH, decoder(ClusterColocationProfile), self._profiles),
            self._follow("/api/v1/namespaces", decoder(Namespace), self._namespaces),
            Informer(
                transport,
                clock,
                "/api/v1/pods",
                _decode_pod,
                on_set=self._set_pod,
                on_gone=self._pod_gone,
                on_synced=self._round_soon,
                on_batch=_nothing,
                selector=only,
            ),
        ]

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        self._stopped = True
        self._rest.stop()
        for informer in self._informers:
            informer.stop()
        if self._next is not None:
            self._next.cancel()

    def _follow(self, path: str, decode: Any, known: dict[str, Any]) -> Informer[Any]:
        def set_(item: Any) -> None:
            known[item.metadata.name] = item
            self._round_soon()

        return Informer(
            self._rest.transport,
            self._clock,
            path,
            decode,
            on_set=set_,
            on_gone=lambda item: known.pop(item.metadata.name, None),
            on_synced=self._round_soon,
            on_batch=_nothing,
            optional=True,
        )

    def _set_pod(self, pod: _Waiting) -> None:
        self._pods[pod.metadata.uid] = pod

    def _pod_gone(self, pod: _Waiting) -> None:
        """It has a node by now, or is deleted."""
        self._pods.pop(pod.metadata.uid, None)
        self._compared.pop(pod.metadata.uid, None)

    def _round_soon(self) -> None:
        if not self._stopped and all(informer.synced for informer in self._informers):
            self._plan(0.0)

    def _plan(self, delay: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._clock.call_later(delay, self._round)

    def _round(self) -> None:
        self._plan(INTERVAL)
        profiles = [each for _, each in sorted(self._profiles.items()) if self._usable(each)]
        for uid, pod in list(self._pods.items()):
            if (pod.manifest.get("status") or {}).get("phase") == "Pending":
                self._clock.attempt("ProfileController", uid, partial(self._compare, pod, profiles))

    def _usable(self, profile: ClusterColocationProfile) -> bool:
        metadata = profile.metadata
        if metadata.deletion_timestamp is not None:
            return False
        if metadata.labels.get(CONTROLLER_MANAGED) != "true" and not self._by_default:
            return False
        wrong = probability_problem(profile)
        self._once(metadata.name, f"profile left out why={wrong}" if wrong else "")
        return not wrong

    def _compare(self, pod: _Waiting, profiles: Sequence[ClusterColocationProfile]) -> None:
        """Write what differs from all profiles of a pod together: one alone would undo what a later name decides."""
        now, before = self._clock.monotonic(), self._compared.get(pod.metadata.uid, {})
        matching = {
            (each.metadata.name, each.metadata.resource_version): each for each in profiles if self._of(each, pod)
        }
        if all(key in before and now - before[key] < FORCE_AFTER for key in matching):
            return
        since = {
            key: now if key in before or thrown(profile, self._dice) else math.inf for key, profile in matching.items()
        }
        since |= {key: math.inf for key in matching if before.get(key) == math.inf}  # lost the dice
        changed: Manifest = pod.manifest
        for key, profile in matching.items():
            if since[key] != math.inf:
                changed = patched(with_words(changed, profile.spec, again=True), profile.spec)
        steps = changes(pod.manifest, changed)
        again = {key: time if time == math.inf else -math.inf for key, time in since.items()}  # in the next round
        allowed = not steps or self._allowed()
        self._compared[pod.metadata.uid] = since if allowed else again
        if not steps or not allowed:
            return

        def done(response: Response) -> None:
            failed = not response.ok and response.code != 404
            self._once(pod.metadata.uid, f"profiles unwritten pod={pod.metadata.key} why={refusal(response)}" * failed)
            if failed and pod.metadata.uid in self._compared:
                self._compared[pod.metadata.uid] = again

        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version}
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        self._rest.send(Request("PATCH", path, to_json([unchanged, *steps]), JSON_PATCH), done)

    def _of(self, profile: ClusterColocationProfile, pod: _Waiting) -> bool:
        """Whether both selectors match; a profile without a selector of pods is for new ones alone, as upstream's."""
        spec = profile.spec
        if spec.selector is None or not selector_matches(spec.selector, pod.metadata.labels):
            return False
        namespace = self._namespaces.get(pod.metadata.namespace)
        return spec.namespace_selector is None or (
            namespace is not None and selector_matches(spec.namespace_selector, namespace.metadata.labels)
        )

    def _allowed(self) -> bool:
        """Take a token; at most BURST of them come together, QPS in a second."""
        now = self._clock.monotonic()
        self._tokens = min(self._tokens + (now - self._filled) * QPS, BURST)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _nothing() -> None:
    """Each event is complete by itself."""
