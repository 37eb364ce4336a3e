"""Kubelet's rules for restarts of ended containers."""


def again(policy: str, code: int) -> bool:
    """Whether a container that ended with `code` is started again under the pod's restart policy."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def pause(restarts: int, first: float, longest: float) -> float:
    """Seconds before the next start. The first restart is immediate, then the pause doubles."""
    return 0.0 if restarts <= 0 else min(longest, first * 2.0 ** min(restarts - 1, 16))
