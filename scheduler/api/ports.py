"""Ports of the host that a pod takes for itself, in the one form in which they can be compared."""

from dataclasses import dataclass

from scheduler.api.core import PodSpec

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 a word of the API, nothing is bound to it


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    address: str
    protocol: str
    number: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether one node cannot give both."""
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or EVERY_ADDRESS in {self.address, other.address}


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of all containers that run at the same time: the ordinary ones and sidecars."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    return tuple(
        HostPort(port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )
