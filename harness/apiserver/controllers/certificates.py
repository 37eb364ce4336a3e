"""Signs certificates that somebody asked for and somebody approved, and lets old requests go.

Follows `pkg/controller/certificates`: the three signers of Kubernetes for clients and kubelets, and the cleaner.
Nothing is approved here: upstream approves what kubelets ask for, and no kubelet here asks.
"""

import base64
from typing import Final

from harness.apiserver.access.authority import Authority
from harness.apiserver.access.signing import (
    API_CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    NotSigned,
    check_signer,
    read_request,
)
from harness.apiserver.controllers.control import Control
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from scheduler.api.clock import from_rfc3339

REQUESTS: CollectionKey = ("certificates.k8s.io", "certificatesigningrequests")
_SIGNERS: Final = frozenset({API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING})
_KEPT: Final = {"Approved": 3600.0, "Denied": 3600.0, "": 24 * 3600.0}  # seconds, upstream's, by what was decided


class Certificates:
    """Follows the requests of one server."""

    def __init__(self, control: Control, authority: Authority) -> None:
        self._control, self._authority = control, authority
        self._resource = control.resource(REQUESTS)
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is not None:
            self._turns.add(change.key)
            self._control.clock.call_later(_KEPT[_decided(change.new.obj)], lambda: self._forget(change.key))

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

    def _forget(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is not None and self._age(item) >= _KEPT[_decided(item.obj)]:
            self._control.delete(self._resource, item)

    def _age(self, item: Item) -> float:
        """Seconds since something was decided; since it was made, if nothing was."""
        conditions = (item.obj.get("status") or {}).get("conditions") or ()
        since = [one["lastUpdateTime"] for one in conditions if one.get("type") in _KEPT and one.get("lastUpdateTime")]
        moment = from_rfc3339(max(since, default=item.obj["metadata"]["creationTimestamp"]))
        return self._control.clock.now() - moment


def _types(obj: Object) -> set[str]:
    return {str(one.get("type")) for one in (obj.get("status") or {}).get("conditions") or ()}


def _decided(obj: Object) -> str:
    return next((one for one in ("Approved", "Denied") if one in _types(obj)), "")
