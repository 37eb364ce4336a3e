"""DefaultBinder: a pod is bound by posting a Binding, which is what the shell does with every `Bind` decision."""

from scheduler.framework.extension_points import Bind
from scheduler.framework.handle import Handle


class DefaultBinder(Bind):
    name = "DefaultBinder"

    def __init__(self, handle: Handle) -> None:
        del handle
