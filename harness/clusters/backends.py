"""The table of backends: name → class. A class is imported when its backend is used."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seatrial.harness.clusters.feature_gates import workload_with_job
from seatrial.harness.clusters.protocol import ClusterBackend
from seatrial.harness.errors import UsageError

VIRTUAL, EMBEDDED, LOCAL, LOCAL_DOCKER = "virtual", "embedded", "local", "local-docker"
SIMULATED, REAL = "simulated", "real"  # nodes that cases get
ENVTEST, EXISTING, KIND, KUBELET = "envtest", "existing", "kind", "kubelet"
KUBELET_CLAIMS = "kubelet-claims"
BACKENDS = {  # name → where it is, and its description in the help
    EMBEDDED: (
        "seatrial.harness.clusters.embedded:EmbeddedBackend",
        "our own API server and simulated nodes, as a process",
    ),
    VIRTUAL: ("seatrial.harness.clusters.virtual:VirtualBackend", "the same inside this process, in virtual time"),
    ENVTEST: (
        "seatrial.harness.clusters.envtest:EnvtestBackend",
        "real etcd, kube-apiserver and kube-controller-manager, and simulated nodes",
    ),
    EXISTING: (
        "seatrial.harness.clusters.existing:ExistingBackend",
        "a cluster that runs already, with simulated nodes of the run's own",
    ),
    KIND: (
        "seatrial.harness.clusters.kind:KindBackend",
        "a kind cluster in Docker, with simulated nodes beside its own",
    ),
    KUBELET: (
        "seatrial.harness.clusters.kubelet:KubeletBackend",
        "the same API server, and this machine's kubelet: pods as containers on its devices",
    ),
    KUBELET_CLAIMS: (
        "seatrial.harness.clusters.kubelet:KubeletClaimsBackend",
        "the same with our driver of claims in place of our device plugin",
    ),
    LOCAL: (
        "seatrial.harness.clusters.local:LocalBackend",
        "our own API server and this machine: pods as processes on it",
    ),
    LOCAL_DOCKER: ("seatrial.harness.clusters.local:LocalDockerBackend", "the same with pods as Docker containers"),
}


THIS_MACHINE = frozenset({LOCAL, LOCAL_DOCKER, KUBELET, KUBELET_CLAIMS})  # the only node is this machine

_WITH_GATES = frozenset({EMBEDDED, VIRTUAL, ENVTEST})

SIDE_BY_SIDE = frozenset(
    {EMBEDDED, VIRTUAL, ENVTEST, EXISTING}
)  # several clusters of these share nothing but the processor


def backend_named(
    name: str,
    *,
    seed: int = 0,
    kubeconfig: Path | None = None,
    context: str = "",
    fake: str = "",
    own_schedulers: bool = True,
    deployed: str = "",
    kind_image: str = "",
    kind_config: Path | None = None,
    kind_keep: str = "",
    nodes: str = "",
    roles: Sequence[Path] = (),
    feature_gates: str = "",
) -> ClusterBackend:
    """`fake`: what stands in for this machine's devices, where this machine is the node. `kubeconfig`, `context`: where
    the cluster is that runs already. `kind_image`, `kind_config`, `kind_keep`: see kind.py. `own_schedulers`: the run
    starts the scheduler, so it gets names of its own. `nodes`: simulated (default), or real nodes of the cluster, which
    are lent. `roles`: files of ClusterRoles, the only rights of the run. `feature_gates`: see feature_gates.py.

    Raises:
        UsageError: no such backend, or one that cannot be used here.
    """
    if name not in BACKENDS:
        raise UsageError(f"no backend {name!r}; expected one of: {', '.join(BACKENDS)}")
    if (kubeconfig is not None or context) and name != EXISTING:
        flag = "--kubeconfig" if kubeconfig is not None else "--context"
        raise UsageError(f"{flag}: backend {name!r} makes its own cluster; use --backend {EXISTING}")
    if fake and name not in THIS_MACHINE:
        raise UsageError(
            f"--fake {fake}: for --backend {', '.join(sorted(THIS_MACHINE))}; simulated nodes come from --fleet"
        )
    more: dict[str, Any] = {"fake": fake} if fake else {}
    for flag, value in (("--kind-image", kind_image), ("--kind-config", kind_config), ("--kind-keep", kind_keep)):
        if value and name != KIND:
            raise UsageError(f"{flag} {value}: expected --backend {KIND}, found {name}")
    if name == KIND:
        more |= {"image": kind_image, "config": kind_config, "keep": kind_keep}
    if name in {EXISTING, KIND}:
        more |= {"own_schedulers": own_schedulers, "deployed": deployed}
    elif deployed:
        raise UsageError(f"--scheduler-name {deployed}: expected --backend {EXISTING} or {KIND}, found {name}")
    if roles:
        if name != ENVTEST:
            raise UsageError(f"--cluster-role {roles[0]}: expected --backend {ENVTEST}, found {name}")
        more["roles"] = roles
    if feature_gates:
        if name not in _WITH_GATES:
            choices = ", ".join(sorted(_WITH_GATES))
            raise UsageError(f"--feature-gates {feature_gates}: expected --backend {choices}, found {name}")
        more["workload_with_job"] = workload_with_job(feature_gates)
    if nodes not in {"", SIMULATED, REAL}:
        raise UsageError(f"--nodes {nodes}: expected {SIMULATED} or {REAL}")
    if nodes == REAL and name != EXISTING:
        raise UsageError(f"--nodes {REAL}: backend {name!r} has no nodes of others; use --backend {EXISTING}")
    if name == EXISTING:
        more |= {"nodes": nodes or SIMULATED, "kubeconfig": kubeconfig, "context": context}
    module, _, attribute = BACKENDS[name][0].partition(":")
    backend: ClusterBackend = getattr(importlib.import_module(module), attribute)(seed=seed, **more)
    why = backend.probe()
    if why is not None:
        raise UsageError(f"backend {name!r} cannot be used here: {why}")
    return backend
