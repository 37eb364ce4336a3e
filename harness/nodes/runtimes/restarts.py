"""When a container that has ended is started again: kubelet's rules."""


def again(policy: str, code: int) -> bool:
    """Whether a container that ended with `code` is started again under the pod's restart policy."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def pause(restarts: int, first: float, longest: float) -> float:
    """Seconds to wait before the next start. The first end is started again at once, then the pause doubles."""
    return 0.0 if restarts <= 0 else min(longest, first * 2.0 ** min(restarts - 1, 16))
