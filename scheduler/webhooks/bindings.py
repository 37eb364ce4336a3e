"""Who may bind pods: Koordinator's binding admission (V-8)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from seatrial.scheduler.api.core import Pod

DENIED = "binding denied: username is not in the allowed list"
BYPASS_LABEL = "koordinator.sh/binding-admission-bypass"


@dataclass(frozen=True, slots=True)
class BindingRules:
    """`users`: parts of the names of users that may bind; without any, all may. `namespaces`: "*" for all, and without
    any, none is looked at. `bypass_labels`, `bypass_annotations`: keys by which a pod may be bound by anybody.
    `dry_run`: count, and deny nothing."""

    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    exclude_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BYPASS_LABEL,)
    bypass_annotations: tuple[str, ...] = ()
    dry_run: bool = False


class Bindings:
    """Decides about bindings, and counts the decisions by their reason."""

    def __init__(self, rules: BindingRules, pod: Callable[[str, str], Pod | None]) -> None:
        """`pod` finds a pod by namespace and name; None: it is not known, and may be bound."""
        self._rules, self._pod = rules, pod
        self.decisions: Counter[str] = Counter()

    def may_bind(self, user: str, namespace: str, name: str) -> bool:
        """Whether the user may bind that pod."""
        if not self._rules.users:
            return True
        decision = self._decision(user, namespace, name)
        self.decisions[decision] += 1
        return decision != "denied"

    def _decision(self, user: str, namespace: str, name: str) -> str:
        rules = self._rules
        if any(part in user for part in rules.users):
            return "allowed_username"
        if namespace in rules.exclude_namespaces:
            return "excluded_ns"
        if "*" not in rules.namespaces and namespace not in rules.namespaces:
            return "out_of_scope"
        pod = self._pod(namespace, name)
        if pod is None or any(key in pod.metadata.labels for key in rules.bypass_labels):
            return "bypass_label"
        if any(key in pod.metadata.annotations for key in rules.bypass_annotations):
            return "bypass_annotation"
        return "dry_run" if rules.dry_run else "denied"
