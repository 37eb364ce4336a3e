"""Keeps what the webhooks know up to date from the API server."""

from collections.abc import Callable
from typing import Any, TypeVar

from seatrial.scheduler.api import colocation
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.colocation import ClusterColocationProfile
from seatrial.scheduler.api.core import ConfigMap, Node, Pod
from seatrial.scheduler.api.quota import PROFILES_PATH, QUOTAS_PATH, ElasticQuota, ElasticQuotaProfile
from seatrial.scheduler.api.slo import CONFIG_NAME, CONFIG_NAMESPACE
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.api.workloads import Namespace, PriorityClass
from seatrial.scheduler.client.informer import Following, Informer
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.webhooks import label_rules
from seatrial.scheduler.webhooks.profiles import Profiles
from seatrial.scheduler.webhooks.quota_topology import QuotaTopology
from seatrial.scheduler.webhooks.reviews import Admission
from seatrial.scheduler.webhooks.slo_config import SloConfigRules

K = TypeVar("K", bound=Following)
PODS_PATH = "/api/v1/pods"


class Follower:
    """Starts informers, and says when all of them know their objects."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._informers: list[Informer[Any]] = []
        self._on_synced: Callable[[], None] = lambda: None

    def start(self, on_synced: Callable[[], None]) -> None:
        """Start; `on_synced` is called once, when all are known."""
        self._on_synced = on_synced
        for informer in self._informers:
            informer.start()

    def _synced(self) -> None:
        if all(informer.synced for informer in self._informers):
            on_synced, self._on_synced = self._on_synced, lambda: None
            on_synced()

    def add(
        self,
        path: str,
        decode: Callable[[bytes], K],
        on_set: Callable[[K], object],
        on_gone: Callable[[K], object],
        *,
        optional: bool = True,
        selector: dict[str, str] | None = None,
    ) -> Informer[K]:
        """Follow a kind, which need not be served if `optional`."""
        informer: Informer[Any] = Informer(
            self._transport,
            self._clock,
            path,
            decode,
            on_set=on_set,  # type: ignore[arg-type]
            on_gone=on_gone,  # type: ignore[arg-type]
            on_synced=self._synced,
            on_batch=_nothing,
            selector=selector or {},
            optional=optional,
        )
        self._informers.append(informer)
        return informer

    def follow(self, admission: Admission) -> None:
        """Follow what the rules of this admission depend on."""
        if admission.topology is not None:
            self.quotas(admission.topology)
        if admission.profiles is not None:
            self.colocation(admission.profiles)
        if admission.labels is not None:
            self.labels(admission.labels)
        if admission.slo_config is not None:
            self.slo_config(admission.slo_config)

    def quotas(self, topology: QuotaTopology) -> tuple[Informer[ElasticQuota], Informer[Pod]]:
        """Follow quotas and pods, and with trees of quotas their profiles."""
        if topology.gates.multi_quota_tree:
            decode = decoder(ElasticQuotaProfile)
            self.add(PROFILES_PATH, decode, topology.set_profile, topology.remove_profile)
        quotas = self.add(QUOTAS_PATH, decoder(ElasticQuota), topology.set_quota, topology.remove_quota)
        return quotas, self.add(PODS_PATH, PodDecoder(), topology.set_pod, topology.remove_pod, optional=False)

    def colocation(self, known: Profiles) -> None:
        """Follow ClusterColocationProfiles, and what they name."""
        self._map(colocation.PROFILES_PATH, ClusterColocationProfile, known.profiles)
        self._map("/api/v1/namespaces", Namespace, known.namespaces)
        self._map("/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass, known.priority_classes)

    def _map(self, path: str, kind: type[K], known: dict[str, K]) -> None:
        def set_(result: K) -> None:
            known[result.metadata.name] = result

        self.add(path, decoder(kind), set_, lambda item: known.pop(item.metadata.name, None))

    def labels(self, rules: label_rules.LabelRules) -> None:
        """Follow the ConfigMap with the rules about labels."""
        path = f"/api/v1/namespaces/{label_rules.NAMESPACE}/configmaps"
        only = {"fieldSelector": f"metadata.name={label_rules.NAME}"}
        self.add(path, decoder(ConfigMap), rules.set_config, rules.remove_config, selector=only)

    def slo_config(self, rules: SloConfigRules) -> None:
        """Follow labels of nodes, and the ConfigMap with their settings."""

        def set_node(node: Node) -> None:
            rules.nodes[node.name] = node.metadata.labels

        def set_config(config_map: ConfigMap) -> None:
            rules.data = config_map.data

        self.add("/api/v1/nodes", decoder(Node), set_node, lambda node: rules.nodes.pop(node.name, None))
        path, only = (
            f"/api/v1/namespaces/{CONFIG_NAMESPACE}/configmaps",
            {"fieldSelector": f"metadata.name={CONFIG_NAME}"},
        )
        self.add(path, decoder(ConfigMap), set_config, lambda _: set_config(ConfigMap()), selector=only)

    def pods(self) -> Callable[[str, str], Pod | None]:
        """Follow pods. Returns what finds one by namespace and name."""
        known: dict[tuple[str, str], Pod] = {}

        def set_(pod: Pod) -> None:
            known[pod.metadata.namespace, pod.metadata.name] = pod

        self.add(
            PODS_PATH, PodDecoder(), set_, lambda pod: known.pop((pod.metadata.namespace, pod.metadata.name), None)
        )
        return lambda namespace, name: known.get((namespace, name))


def _nothing() -> None:
    """Each event is complete by itself."""
