"""Pressure stall information of pods and containers (KM-16): the part of the last ten seconds in which tasks waited.

On cgroup v2, and on Anolis, whose files are in the hierarchy of cpuacct.
"""

from collections.abc import Iterable, Iterator, Mapping

from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.koordlet.cgroups import CPU_PRESSURE, IO_PRESSURE, MEMORY_PRESSURE, CgroupError, Cgroups
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.serving.exposition import Family, sample

FILES = {"cpu": CPU_PRESSURE, "mem": MEMORY_PRESSURE, "io": IO_PRESSURE}
_DEGREES = ("some", "full")


def averages(text: str) -> dict[str, float]:
    """`avg10` in percent by degree, `some` or `full`; a degree that the kernel does not have is left out."""
    rows = (line.split() for line in text.splitlines())
    by_row = {
        row[0]: finite(dict(word.partition("=")[::2] for word in row[1:]).get("avg10", "")) for row in rows if row
    }
    return {degree: value for degree, value in by_row.items() if degree in _DEGREES and value is not None}


class Pressures:
    """The last values of each pod and each container."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._last: dict[str, list[tuple[dict[str, str], float]]] = {}  # uid → labels and values

    def look(self, pods: Iterable[LocalPod]) -> None:
        """Read the files of all groups; of a pod that is gone, or whose kernel has none, nothing is kept."""
        self._last = {pod.uid: list(self._of(pod)) for pod in pods}

    def _of(self, pod: LocalPod) -> Iterator[tuple[dict[str, str], float]]:
        metadata = pod.pod.metadata
        names = {"pod_namespace": metadata.namespace, "pod_name": metadata.name, "pod_uid": pod.uid}
        for container, folder in {"": pod.folder, **pod.containers}.items():
            for resource, file in FILES.items():
                try:
                    amounts = averages(self._cgroups.read(folder, file))
                except CgroupError:
                    continue
                more = {"container_name": container} if container else {}
                more |= {"cpu_full_supported": str("full" in amounts).lower()} if resource == "cpu" else {}
                for degree in _DEGREES:
                    psi = {"psi_resource_type": resource, "psi_precision": "avg10", "psi_degree": degree}
                    yield {**names, **more, **psi}, amounts.get(degree, 0.0)

    def families(self, labels: Mapping[str, str]) -> Iterator[Family]:
        """Metric families under Koordinator's names; `labels`: of the node."""
        values = [each for pod in self._last.values() for each in pod]
        for name, of_container in (("koordlet_pod_psi", False), ("koordlet_container_psi", True)):
            rows = [
                sample(name, {**labels, **own}, value)
                for own, value in values
                if ("container_name" in own) is of_container
            ]
            if rows:
                yield name, "gauge", "Percent of ten seconds in which tasks waited.", rows
