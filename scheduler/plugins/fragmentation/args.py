"""The arguments of DeviceFragmentation."""

from msgspec import field

from seatrial.scheduler.api.quantity import CPU, MEMORY, Quantity, QuantityError, amount
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.framework.extension_points import Args
from seatrial.scheduler.packing.shapes import CARD, Shape
from seatrial.scheduler.packing.strategies import STRATEGIES, StrategyName

PERCENT = CARD // 100  # a percent of a card in thousandths
MAX_WINDOW = 1_000_000


class TypicalPod(Wire, frozen=True, forbid_unknown_fields=True):
    """Pods of one shape: percent of a card (above 100: whole cards), CPU, memory, models, and their number."""

    gpu: int = 0
    cpu: Quantity = 0
    memory: Quantity = 0
    models: tuple[str, ...] = ()
    weight: int = 1

    @property
    def shape(self) -> Shape:
        """The shape. The pod must have passed `DeviceFragmentationArgs.check`."""
        cards = -(-self.gpu // 100)
        part = min(self.gpu, 100) * PERCENT
        return Shape(amount(CPU, self.cpu), amount(MEMORY, self.memory), cards, part, tuple(sorted({*self.models})))


class DeviceFragmentationArgs(Args, frozen=True):
    """How placements are scored, and for which pods to come.

    `common_ties`: pods of all classes prefer the same one of equally good nodes, so that they fill it together.
    `typical_pods`: fixed expectations; none: they are estimated from the last `window` pods that arrived.
    """

    strategy: StrategyName = "OpportunityCost"
    common_ties: bool = True
    typical_pods: tuple[TypicalPod, ...] = field(default=())
    window: int = 8192

    def check(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}, found {self.strategy!r}")
        if not 1 <= self.window <= MAX_WINDOW:
            raise ValueError(f"window: expected 1 to {MAX_WINDOW}, found {self.window}")
        for number, typical in enumerate(self.typical_pods):
            where = f"typicalPods[{number}]"
            if typical.gpu < 0 or (typical.gpu > 100 and typical.gpu % 100):
                raise ValueError(f"{where}.gpu: expected 0 to 100 or a multiple of 100, found {typical.gpu}")
            if typical.weight < 1:
                raise ValueError(f"{where}.weight: expected 1 or more, found {typical.weight}")
            for name, value in ((CPU, typical.cpu), (MEMORY, typical.memory)):
                try:
                    amount(name, value)
                except QuantityError as error:
                    raise ValueError(f"{where}.{name}: {error}") from error
