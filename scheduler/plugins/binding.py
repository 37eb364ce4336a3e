"""DefaultBinder: binds a pod by posting a Binding; the shell does this for every `Bind` decision."""

from seatrial.scheduler.framework.extension_points import Bind
from seatrial.scheduler.framework.handle import Handle


class DefaultBinder(Bind):
    """Bind without any work of its own."""

    name = "DefaultBinder"

    def __init__(self, handle: Handle) -> None:
        del handle
