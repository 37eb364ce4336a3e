"""Keeps a `QuotaTopology` up to date from the API server."""

from collections.abc import Callable

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quota import PROFILES_PATH, QUOTAS_PATH, ElasticQuota, ElasticQuotaProfile
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.webhooks.quota_topology import QuotaTopology


def follow(
    topology: QuotaTopology, transport: Transport, clock: Clock, on_synced: Callable[[], None]
) -> tuple[Informer[ElasticQuota], Informer[Pod]]:
    """Follow quotas and pods. `on_synced` is called once, when both are known."""
    waiting = {"quotas", "pods", "profiles"}
    if not topology.gates.multi_quota_tree:
        waiting.discard("profiles")

    def synced(kind: str) -> None:
        if kind in waiting:
            waiting.discard(kind)
            if not waiting:
                on_synced()

    quotas = Informer(
        transport,
        clock,
        QUOTAS_PATH,
        decoder(ElasticQuota),
        on_set=topology.set_quota,
        on_gone=topology.remove_quota,
        on_synced=lambda: synced("quotas"),
        on_batch=_nothing,
        selector={},
        optional=True,
    )
    pods = Informer(
        transport,
        clock,
        "/api/v1/pods",
        PodDecoder(),
        on_set=topology.set_pod,
        on_gone=topology.remove_pod,
        on_synced=lambda: synced("pods"),
        on_batch=_nothing,
        selector={},
        optional=False,
    )
    if "profiles" in waiting:
        Informer(
            transport,
            clock,
            PROFILES_PATH,
            decoder(ElasticQuotaProfile),
            on_set=topology.set_profile,
            on_gone=topology.remove_profile,
            on_synced=lambda: synced("profiles"),
            on_batch=_nothing,
            selector={},
            optional=True,
        ).start()
    quotas.start()
    pods.start()
    return quotas, pods


def _nothing() -> None:
    """Each event is complete by itself."""
