"""The claims of generic ephemeral volumes: POD-VOLUME, owned by the pod (`pkg/controller/volume/ephemeral`).

A claim goes with its pod by its owner reference.
"""

from collections.abc import Iterator

from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.event_recorder import WARNING
from seatrial.harness.apiserver.controllers.owners import controller_of, reference_to
from seatrial.harness.apiserver.controllers.volumes import CLAIMS
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, Item, Key, Object

COMPONENT = "ephemeral_volume"
WEBHOOK_PERIOD = 1.0  # seconds after which a creation that waits for a webhook is looked at again


class EphemeralClaims:
    """Creates a claim for each generic ephemeral volume of a new pod, and again where it was deleted."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._pods, self._claims = control.pods, control.resource(CLAIMS)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.collection(self._pods).listen(self._pod_changed)
        control.objects.collection(self._claims).listen(self._claim_changed)

    def _pod_changed(self, change: Change) -> None:
        if change.old is None and change.new is not None and any(ephemeral_volumes(change.new.obj)):
            self._queue.add(change.key)

    def _claim_changed(self, change: Change) -> None:
        owner = None if change.new is not None or change.old is None else controller_of(change.old.obj)
        if owner is not None and owner.get("kind") == self._pods.kind:
            self._queue.add((change.key[0], owner["name"]))

    def _sync(self, key: Key) -> None:
        pod = self._control.get(self._pods, key)
        if pod is None or "deletionTimestamp" in pod.obj["metadata"]:
            self._queue.forget(key)
            return
        for name, template in ephemeral_volumes(pod.obj):
            problem = self._create(pod, f"{key[1]}-{name}", template)
            if problem:
                message = f"ephemeral volume {name}: {problem}"
                self._control.recorder.record(COMPONENT, self._pods, pod, WARNING, "FailedBinding", message)
                self._queue.add_rate_limited(key)
                return
        self._queue.forget(key)

    def _create(self, pod: Item, name: str, template: Object) -> str:
        """Create the claim if it does not exist. Returns why there is none for the pod; "" if there is."""
        namespace, uid = pod.key[0], pod.obj["metadata"]["uid"]
        known = self._control.get(self._claims, (namespace, name))
        if known is not None:
            owner = controller_of(known.obj)
            if owner is not None and owner.get("uid") == uid:
                return ""
            return f"PVC {namespace}/{name} was not created for pod {'/'.join(pod.key)} (pod is not owner)"
        copied = self._control.copied(template)
        entry = copied.get("metadata") or {}
        metadata = {"name": name, "ownerReferences": [reference_to(self._pods, pod.obj)]}
        metadata |= {field: entry[field] for field in ("annotations", "labels") if entry.get(field)}
        body = {"metadata": metadata, "spec": copied.get("spec") or {}}
        try:
            self._control.objects.create(self._claims, namespace, body, Options(manager=CONTROLLER_MANAGER))
        except Pending:
            self._queue.add_after(WEBHOOK_PERIOD, pod.key)  # a refusal is not notified
        except ApiStatusError as refused:
            return f"create PVC {name}: {refused.message}"
        return ""


def ephemeral_volumes(pod: Object) -> Iterator[tuple[str, Object]]:
    """Names and claim templates of the pod's generic ephemeral volumes."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("ephemeral") is not None:
            yield volume["name"], volume["ephemeral"].get("volumeClaimTemplate") or {}
