"""Parts of a card as HAMi divides cards, whose words Volcano has too: what nodes offer, and what pods hold."""

from collections.abc import Mapping

from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.core import Pod

SLOTS = 10  # pods on a card at most
MEMORY = 80_000  # MiB of a card
TYPE = "NVIDIA-A100"  # both take cards whose type begins so


def card_names(node: NodeBuilder) -> list[str]:
    """A name for each card of the node that no other node's card has."""
    count = sum(group.get("count", 1) for group in node.manifest.get("devices", ()))
    return [f"{node.name}-{number}" for number in range(count)]


def percent_held(pod: Pod, annotation: str) -> Mapping[str, int]:
    """The pod's cards, with percent of the cores of each: `CARD,TYPE,MEMORY,CORES:` of each card in the annotation,
    and `;` between containers."""
    parts = pod.metadata.annotations.get(annotation, "").replace(";", ":").split(":")
    fields = [part.split(",") for part in parts if part]
    return {card: int(cores) for card, _type, _memory, cores in fields}
