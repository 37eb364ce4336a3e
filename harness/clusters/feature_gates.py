"""Feature gates of Kubernetes that a cluster can be started with, in the form of kube-apiserver's flag."""

from seatrial.harness.errors import UsageError

WORKLOAD_WITH_JOB = "WorkloadWithJob"  # alpha in 1.37


def workload_with_job(feature_gates: str) -> bool:
    """Whether `NAME=true,…` switches WorkloadWithJob on; it is off by default.

    Raises:
        UsageError: another gate, or no boolean.
    """
    on = False
    for entry in feature_gates.split(",") if feature_gates else ():
        name, _, state = entry.partition("=")
        if name != WORKLOAD_WITH_JOB or state not in {"true", "false"}:
            expected = f"{WORKLOAD_WITH_JOB}=true or {WORKLOAD_WITH_JOB}=false"
            raise UsageError(f"--feature-gates {feature_gates}: expected {expected}, found {entry!r}")
        on = state == "true"
    return on
