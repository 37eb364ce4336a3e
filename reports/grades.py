"""Grades of evidence: on which devices and on which cluster a case ran, and what a promise needs.

Devices: `simulated` (data in our API server), `stand-in` (the real provider over our library in the place of the
vendor's), `hardware`. Cluster: `virtual` (our API server in virtual time), `embedded` (the same as a process),
`api-server` (a real kube-apiserver), `kubelet` (a cluster with real kubelets). Both lists are from weak to strong.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.harness.results import Case, RunInfo

DEVICES = ("simulated", "stand-in", "hardware")
CLUSTERS = ("virtual", "embedded", "api-server", "kubelet")
GRADES = (*DEVICES, *CLUSTERS)
_CLUSTER_OF_BACKEND = {
    "virtual": "virtual",
    "envtest": "api-server",
    "kubelet": "kubelet",
    "kubelet-claims": "kubelet",
    "kind": "api-server",  # nodes are simulated on all of them
    "kubeconfig": "api-server",
    "existing": "api-server",
}


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of a case's evidence: one word of each list."""

    devices: str = DEVICES[0]
    cluster: str = CLUSTERS[0]

    def suffices(self, needs: Iterable[str]) -> bool:
        """Whether the evidence is at least as strong as each grade that is needed."""
        return all(
            DEVICES.index(self.devices) >= DEVICES.index(need)
            if need in DEVICES
            else CLUSTERS.index(self.cluster) >= CLUSTERS.index(need)
            for need in needs
        )

    def __str__(self) -> str:
        return f"{self.devices}, {self.cluster}"


def strength(grade: Grade) -> tuple[int, int]:
    """A sort key from weak to strong: devices first."""
    return DEVICES.index(grade.devices), CLUSTERS.index(grade.cluster)


def grade_of(info: RunInfo, case: Case | None = None) -> Grade:
    """The grade of a case of a run: that of the run, or the one that the case sets (`Case.grades`)."""
    if info.hardware.startswith("stand-in"):
        devices = "stand-in"
    else:
        devices = "hardware" if info.hardware == "this machine's" else "simulated"
    cluster = _CLUSTER_OF_BACKEND.get(info.backend, "embedded")
    for grade in case.grades if case is not None else ():
        if grade in DEVICES:
            devices = grade
        elif grade in CLUSTERS:
            cluster = grade
    return Grade(devices, cluster)
