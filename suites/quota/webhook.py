"""The quota webhook on a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import admission_webhook
from seatrial.scheduler.api.quota import QUOTAS_PATH


@contextmanager
def quota_webhook(trial: Trial, *options: str, name: str = "") -> Iterator[None]:
    """A webhook process for the pods of this trial's namespace and for all quotas."""
    endpoint = trial.cluster.endpoint
    if endpoint is None:
        pytest.skip(f"needs a cluster that a process can reach; {trial.cluster.name} lives in this process")
    with admission_webhook(trial, "--kubeconfig", str(endpoint.kubeconfig), *options, name=name):
        yield


def path_of(trial: Trial, name: str) -> str:
    return QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas/{name}")
