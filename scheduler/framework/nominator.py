"""Pods that preemption has nominated to nodes."""

from collections.abc import Iterable

from seatrial.scheduler.cache.nodeinfo import PodInfo


class Nominator:
    """Pods nominated to nodes by preemption (status.nominatedNodeName). Filters count them on those nodes."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._group_of: dict[str, str] = {}  # of nominated members, the key of their group
        self.nominated = self._node_of.keys()  # uids; every decision checks whether it is empty

    def nominate(self, info: PodInfo, node: str, group: str = "") -> None:
        """`group`: the key of the pod's group, if the group was nominated together."""
        self.forget(info.uid)
        if group:
            self._group_of[info.uid] = group
        self._node_of[info.uid] = node
        self._by_node.setdefault(node, {})[info.uid] = info

    def forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        self._group_of.pop(uid, None)
        if node is not None:
            there = self._by_node[node]
            del there[uid]
            if not there:
                del self._by_node[node]

    def node_of(self, uid: str) -> str:
        """The node that the pod is nominated to; "" if none."""
        return self._node_of.get(uid, "")

    def group_of(self, uid: str) -> str:
        """The group with which the pod was nominated; "" if none."""
        return self._group_of.get(uid, "")

    def on(self, node: str) -> Iterable[PodInfo]:
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Iterable[str]:
        return self._by_node
