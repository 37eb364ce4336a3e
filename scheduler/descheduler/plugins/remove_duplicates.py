"""RemoveDuplicates: spreads pods of one controller over the nodes that could take them (RSV-R97)."""

from collections import defaultdict
from collections.abc import Sequence

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import matches_node, untolerated
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.pod_strategies import CommonArgs

Key = tuple[str, str, str, tuple[str, ...]]  # namespace, kind and name of the controller; images


class RemoveDuplicatesArgs(CommonArgs, frozen=True):
    """Arguments of RemoveDuplicates."""

    exclude_owner_kinds: tuple[str, ...] = ()


class RemoveDuplicates(Balance):
    """The plugin RemoveDuplicates."""

    name = "RemoveDuplicates"
    args = RemoveDuplicatesArgs

    def __init__(self, args: RemoveDuplicatesArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        by_key: defaultdict[Key, defaultdict[str, list[Pod]]] = defaultdict(lambda: defaultdict(list))
        for pod in self._args.pods(handle, nodes):
            for owner in pod.metadata.owner_references:
                if owner.kind not in self._args.exclude_owner_kinds:
                    images = tuple(sorted(container.image for container in pod.spec.containers))
                    by_key[pod.metadata.namespace, owner.kind, owner.name, images][pod.spec.node_name].append(pod)
        for key, on_nodes in sorted(by_key.items()):
            some = next(iter(on_nodes.values()))[0]
            feasible = [node for node in nodes if self._feasible(some, node)]
            if len(feasible) < 2:
                continue
            upper = -(-sum(map(len, on_nodes.values())) // len(feasible))
            for _, pods in sorted(on_nodes.items()):
                for pod in pods[upper:]:
                    handle.evict(pod, self.name, f"more than {upper} pods of {key[1]} {key[2]} on the node")

    def _feasible(self, pod: Pod, node: Node) -> bool:
        return not node.spec.unschedulable and matches_node(pod, node) and untolerated(pod, node) is None
