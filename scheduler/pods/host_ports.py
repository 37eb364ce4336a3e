"""Host ports of a pod, normalised so that two of them can be compared."""

from dataclasses import dataclass

from seatrial.scheduler.api.core import PodSpec

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 a value of the API; no socket is bound to it


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """One port of the host: address (0.0.0.0 is every address), protocol and number."""

    address: str
    protocol: str
    number: int

    def conflicts(self, other: "HostPort") -> bool:
        """Whether one node cannot provide both ports."""
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
