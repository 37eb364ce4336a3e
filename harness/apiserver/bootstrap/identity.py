"""The UID of the namespace kube-system, by which clients distinguish clusters."""

from uuid import NAMESPACE_URL, uuid5

from seatrial.harness.apiserver.storage.store import Store

_NAMESPACES = ("", "namespaces")
_KEY = ("", "kube-system")


def set_cluster_uid(store: Store, authority: bytes) -> None:
    """Derive the UID from the certificate of the cluster's authority (PEM), which is new in every cluster.

    Other UIDs follow from the seed, so clusters with equal seeds have them in common.
    """
    namespace = store.collection(_NAMESPACES).get(_KEY)
    assert namespace is not None
    uid = str(uuid5(NAMESPACE_URL, authority.decode()))
    store.collection(_NAMESPACES).put(_KEY, {**namespace.obj, "metadata": {**namespace.obj["metadata"], "uid": uid}})
