"""Selectors of services and controllers: they define which pods are replicas of each other."""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import LabelSelector, Requirement


class Owners:
    """Selectors of services by namespace, of controllers by kind and name."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, dict[str, str]]] = {}  # namespace → name → selector
        self._controllers: dict[tuple[str, str, str], LabelSelector] = {}  # kind, namespace, name

    def __bool__(self) -> bool:
        return bool(self._services or self._controllers)

    def set_service(self, namespace: str, name: str, selector: dict[str, str] | None) -> None:
        """Set the selector of a service; None or empty: it selects nothing, or is gone."""
        services = self._services.setdefault(namespace, {})
        if selector:
            services[name] = selector
        else:
            services.pop(name, None)
        if not services:
            del self._services[namespace]

    def set_controller(self, kind: str, namespace: str, name: str, selector: LabelSelector | None) -> None:
        """Set the selector of a ReplicaSet, StatefulSet or ReplicationController; None: it is gone."""
        if selector is None:
            self._controllers.pop((kind, namespace, name), None)
        else:
            self._controllers[kind, namespace, name] = selector

    def selector_of(self, pod: Pod) -> LabelSelector | None:
        """The combined selector of all services and the controller of a pod; None if nothing selects it.

        (component-helpers/scheduling `DefaultSelector`.)
        """
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        exact: dict[str, str] = {}
        for _, selector in sorted(self._services.get(namespace, {}).items()):
            if all(labels.get(key) == value for key, value in selector.items()):
                exact |= selector
        owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        controller = self._controllers.get((owner.kind, namespace, owner.name)) if owner else None
        if controller is None:
            return LabelSelector(exact) if exact else None
        if controller.match_expressions or any(
            exact.get(key, value) != value for key, value in controller.match_labels.items()
        ):
            more = LabelSelector(exact, (*controller.match_expressions, *_as_expressions(controller.match_labels)))
            return more if more.match_labels or more.match_expressions else None
        return LabelSelector(exact | controller.match_labels) if exact or controller.match_labels else None


def _as_expressions(labels: dict[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))
