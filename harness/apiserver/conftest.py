"""One embedded server process for all tests with real clients, and a namespace for each test."""

import itertools
import re
from collections.abc import Iterator

import orjson
import pytest

from seatrial.harness.apiserver.tests.kubectl import Kubectl
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.scheduler.api.transport import Request

_number = itertools.count(1)


@pytest.fixture(scope="package")
def embedded() -> Iterator[EmbeddedCluster]:
    """A server with the default fleet."""
    with EmbeddedBackend(seed=1).start(fleet="default") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kubectl(embedded: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl with a kubeconfig for the embedded server."""
    return Kubectl.of(embedded, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def namespace(embedded: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A fresh namespace, named after the test."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{stem}-{next(_number)}"
    body = orjson.dumps({"metadata": {"name": name}})
    accepted(embedded.call(Request("POST", "/api/v1/namespaces", body)), f"create namespace {name}")
    return name
