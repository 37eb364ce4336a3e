"""Admission of pods that depends on other objects: service account, runtime class, and the namespace's pod security.

Follows the plugins ServiceAccount, RuntimeClass and PodSecurity. The account `default` is not looked up: it is created
with its namespace, and recreated when it is deleted.
"""

from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Change, Item, Object, Store
from seatrial.harness.apiserver.validation.pod_security import Policy, policy_of, violations

_ACCOUNTS, _RUNTIMES = ("", "serviceaccounts"), ("node.k8s.io", "runtimeclasses")
_NAMESPACES = ("", "namespaces")
_TEMPLATES = {  # kinds with a pod template, and where it is
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("", "podtemplates"): ("template",),
}


class PodAdmission:
    """Checks pods and pod templates before they are stored."""

    def __init__(self, store: Store) -> None:
        self._accounts, self._runtimes = store.collection(_ACCOUNTS), store.collection(_RUNTIMES)
        self._policies: dict[str, tuple[Item, Policy | None]] = {}  # of namespaces, with the object that they are from
        store.collection(_NAMESPACES).listen(self._namespace_changed)

    def check_pod(self, namespace: Item, body: Object, spec: dict[str, Any], warnings: list[str]) -> None:
        """Check a new pod.

        Raises:
            ApiStatusError: 403, its account or runtime class does not exist, or the pod violates the enforced level.
        """
        account = spec.get("serviceAccountName") or spec.get("serviceAccount")
        if account and account != "default" and self._accounts.get((namespace.key[1], account)) is None:
            where = f"{namespace.key[1]}/{account}"
            raise _forbidden(body, f'error looking up service account {where}: serviceaccount "{account}" not found')
        runtime = spec.get("runtimeClassName")
        if runtime and self._runtimes.get(("", runtime)) is None:
            raise _forbidden(body, f'pod rejected: RuntimeClass "{runtime}" not found')
        policy = self._policy(namespace)
        if policy is None:
            return
        enforce_violations = violations(policy.enforce, spec)
        if enforce_violations:
            level = f'"{policy.enforce}:{policy.enforce_version}"'
            raise _forbidden(body, f"violates PodSecurity {level}: {', '.join(enforce_violations)}")
        _warn(policy, spec, warnings)

    def warn_of_template(self, namespace: Item, resource: Resource, body: Object, warnings: list[str]) -> None:
        """Warn if pods of this workload violate the level to warn of."""
        path = _TEMPLATES.get(resource.key)
        policy = self._policy(namespace) if path is not None else None
        if path is None or policy is None:
            return
        entry: Any = body
        for name in (*path, "spec"):
            entry = entry.get(name) if isinstance(entry, dict) else None
        if isinstance(entry, dict):
            _warn(policy, entry, warnings)

    def _namespace_changed(self, change: Change) -> None:
        self._policies.pop(change.key[1], None)

    def _policy(self, namespace: Item) -> Policy | None:
        known = self._policies.get(namespace.key[1])
        if known is None or known[0] is not namespace:
            known = (namespace, policy_of(namespace.obj["metadata"].get("labels") or {}))
            self._policies[namespace.key[1]] = known
        return known[1]


def _warn(policy: Policy, spec: dict[str, Any], warnings: list[str]) -> None:
    warn_violations = violations(policy.warn, spec)
    if warn_violations:
        warnings.append(
            f'would violate PodSecurity "{policy.warn}:{policy.warn_version}": {", ".join(warn_violations)}'
        )


def _forbidden(body: Object, why: str) -> errors.ApiStatusError:
    return errors.forbidden("pods", "", str(body["metadata"].get("name", "")), why)
