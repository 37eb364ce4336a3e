"""The error of a container that cannot be talked to, as the harness and as the API server know it."""

from seatrial.harness.apiserver.conversation import ConversationError
from seatrial.harness.errors import ClusterError


class ContainerError(ClusterError, ConversationError):
    """A container does not exist or does not run, or its runtime runs no programs."""
