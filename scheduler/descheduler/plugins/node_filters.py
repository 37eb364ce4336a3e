"""Arguments that Koordinator's own balance strategies share: which nodes and pods they look at."""

from collections.abc import Sequence

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.descheduler.args import Args, Namespaces, check_selector
from seatrial.scheduler.descheduler.framework import Handle
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.pods.selectors import selector_matches


class PodSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named label selector of `podSelectors`."""

    name: str = ""
    selector: LabelSelector | None = None


def check_pod_selectors(selectors: Sequence[PodSelector]) -> None:
    """
    Raises:
        ArgsError: one of `podSelectors` is not a valid selector.
    """
    for number, entry in enumerate(selectors):
        check_selector(f"podSelectors[{number}]", entry.selector)


class BalanceArgs(Args, frozen=True):
    """Arguments that all balance plugins have: the nodes and pods that they consider."""

    paused: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: Namespaces = Namespaces()
    pod_selectors: tuple[PodSelector, ...] = ()

    def check(self) -> None:
        self.evictable_namespaces.check("evictableNamespaces")
        check_selector("nodeSelector", self.node_selector)
        check_pod_selectors(self.pod_selectors)

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes that `nodeSelector` matches."""
        selector = self.node_selector
        return [node for node in nodes if selector is None or selector_matches(selector, node.metadata.labels)]

    def is_target(self, pod: Pod) -> bool:
        """Whether a pod selector matches, or there is none."""
        selectors = [selector.selector for selector in self.pod_selectors if selector.selector is not None]
        return not selectors or any(selector_matches(selector, pod.metadata.labels) for selector in selectors)

    def may_evict(self, handle: Handle, pod: Pod) -> bool:
        """Whether the pod is selected and may be evicted."""
        return (
            self.is_target(pod) and self.evictable_namespaces.allows(pod.metadata.namespace) and handle.may_evict(pod)
        )
