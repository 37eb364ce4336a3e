"""The CertificateSigningRequest controllers: sign approved requests and delete old ones.

Follows `pkg/controller/certificates`: the three signers of Kubernetes for clients and kubelets, and the cleaner.
There is no approver: upstream approves requests of kubelets only, and the kubelets here send none.
"""

import base64
from typing import Final

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.access.signing import (
    API_CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    NotSigned,
    check_signer,
    read_request,
)
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.times import seconds_of

REQUESTS: CollectionKey = ("certificates.k8s.io", "certificatesigningrequests")
_SIGNERS: Final = frozenset({API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING})
_RETENTION: Final = {"Approved": 3600.0, "Denied": 3600.0, "": 24 * 3600.0}  # seconds by decision; upstream's values


class Certificates:
    """Reconciles CertificateSigningRequests."""

    def __init__(self, control: Control, authority: Authority) -> None:
        self._control, self._authority = control, authority
        self._resource = control.resource(REQUESTS)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        self._expired: WorkQueue[Key] = WorkQueue(control.clock, self._delete_expired)
        control.objects.collection(self._resource).listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is not None:
            self._queue.add(change.key)
            self._expired.add_later(_RETENTION[_decision(change.new.obj)], change.key)

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None or item.obj["spec"].get("signerName") not in _SIGNERS:
            return
        status = item.obj.get("status") or {}
        if "Approved" in _types(item.obj) and "Failed" not in _types(item.obj) and not status.get("certificate"):
            self._control.put_status(self._resource, item, self._signed(item, status))

    def _signed(self, item: Item, status: Object) -> Object:
        spec, usages = item.obj["spec"], item.obj["spec"].get("usages") or ()
        try:
            request = read_request(spec.get("request"))
            check_signer(spec["signerName"], request, frozenset(usages))
        except (NotSigned, ValueError) as error:
            failed = self._control.condition("Failed", "True", "SignerValidationFailure", str(error))
            failed["lastUpdateTime"] = failed["lastTransitionTime"]
            return {**status, "conditions": [*(status.get("conditions") or ()), failed]}
        pem = self._authority.sign(request, usages, self._control.clock.now(), spec.get("expirationSeconds"))
        return {**status, "certificate": base64.b64encode(pem).decode()}

    def _delete_expired(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is not None and self._age(item) >= _RETENTION[_decision(item.obj)]:
            self._control.delete(self._resource, item)

    def _age(self, item: Item) -> float:
        """Seconds since the decision, or since creation if there is none."""
        conditions = (item.obj.get("status") or {}).get("conditions") or ()
        since = [
            condition["lastUpdateTime"]
            for condition in conditions
            if condition.get("type") in _RETENTION and condition.get("lastUpdateTime")
        ]
        moment = seconds_of(max(since, default=item.obj["metadata"]["creationTimestamp"]))
        return self._control.clock.now() - moment


def _types(obj: Object) -> set[str]:
    return {str(condition.get("type")) for condition in (obj.get("status") or {}).get("conditions") or ()}


def _decision(obj: Object) -> str:
    return next((kind for kind in ("Approved", "Denied") if kind in _types(obj)), "")
