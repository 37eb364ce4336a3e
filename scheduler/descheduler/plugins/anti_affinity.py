"""RemovePodsViolatingInterPodAntiAffinity: evicts pods that share a domain with pods that they avoid (RSV-R97)."""

from collections.abc import Iterable, Sequence

from seatrial.scheduler.api.core import Node, PodAffinityTerm
from seatrial.scheduler.descheduler.framework import Deschedule, Handle
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.pod_strategies import CommonArgs
from seatrial.scheduler.descheduler.pod_order import kubernetes_class
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.pods.selectors import selector_matches

_QOS = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


class RemovePodsViolatingInterPodAntiAffinity(Deschedule):
    """Once a pod is evicted it is no longer in the way of others: the rest of its node is judged without it."""

    name = "RemovePodsViolatingInterPodAntiAffinity"
    args = CommonArgs

    def __init__(self, args: CommonArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        by_name = {node.name: node for node in nodes}
        seen = [pod for node in nodes for pod in handle.pods_on(node.name) if self._args.selects(pod)]
        left: dict[str, dict[str, Pod]] = {}
        for pod in seen:
            left.setdefault(pod.metadata.namespace, {})[pod.metadata.uid] = pod
        order = sorted(
            seen, key=lambda pod: (pod.spec.node_name, pod.spec.priority, _QOS[kubernetes_class(pod)], pod.key)
        )
        for pod in order:
            with handle.clock.faults.guard(self.name, pod.key):
                if not self._violates(handle.state, pod, left, by_name) or not handle.may_evict(pod):
                    continue
                if handle.evict(pod, self.name, "pod is beside a pod that its anti-affinity forbids"):
                    del left[pod.metadata.namespace][pod.metadata.uid]

    def _violates(self, state: ClusterState, pod: Pod, left: dict[str, dict[str, Pod]], nodes: dict[str, Node]) -> bool:
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
        own = nodes[pod.spec.node_name].metadata.labels
        for term in affinity.required if affinity is not None else ():
            domain = own.get(term.topology_key)
            if domain is None or term.label_selector is None:
                continue
            for namespace in namespaces_of(state, pod, term):
                for other in left.get(namespace, {}).values():
                    if (
                        other.metadata.uid != pod.metadata.uid
                        and nodes[other.spec.node_name].metadata.labels.get(term.topology_key) == domain
                        and selector_matches(term.label_selector, other.metadata.labels)
                    ):
                        return True
        return False


def namespaces_of(state: ClusterState, pod: Pod, term: PodAffinityTerm) -> Iterable[str]:
    """The namespaces that a term is about: those named, those selected, or else the pod's own."""
    if not term.namespaces and term.namespace_selector is None:
        return (pod.metadata.namespace,)
    selected = (
        name
        for name, labels in state.namespaces.items()
        if term.namespace_selector is not None and selector_matches(term.namespace_selector, labels)
    )
    return dict.fromkeys((*term.namespaces, *selected))
