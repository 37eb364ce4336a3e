"""A second namespace, for gangs whose members or groups are in two."""

from collections.abc import Iterator

import pytest

from seatrial.fixtures.trial import Trial


@pytest.fixture
def second_namespace(trial: Trial) -> Iterator[str]:
    """A namespace beside that of the trial; deleted afterwards."""
    name = f"{trial.name}-other"
    trial.accept({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "/api/v1/namespaces")
    yield name
    trial.call("DELETE", f"/api/v1/namespaces/{name}")
