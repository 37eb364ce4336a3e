"""What a command says, for tests that want all of it at once."""

from collections.abc import Sequence

from seatrial.harness.apiserver.conversation import OUTPUTS, STDERR, Outcome, everything
from seatrial.harness.nodes.runtimes.protocol import Runtime, Work


async def executed(runtime: Runtime, work: Work, container: str, command: Sequence[str]) -> tuple[Outcome, bytes]:
    """How a short command ended, and what it said on both outputs."""
    conversation = await runtime.exec(work, container, command, OUTPUTS)
    try:
        message = await everything(conversation) + await everything(conversation, STDERR)
        return await conversation.outcome(), message
    finally:
        conversation.close()
