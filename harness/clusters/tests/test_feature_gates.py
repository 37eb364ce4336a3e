"""Feature gates that a cluster is started with."""

import orjson
import pytest

from seatrial.harness.clusters.backends import EMBEDDED, KIND, VIRTUAL, backend_named
from seatrial.harness.clusters.feature_gates import workload_with_job
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.transport import Request

JOBS = "/apis/batch/v1/namespaces/default/jobs?dryRun=All"
ON = "WorkloadWithJob=true"


def test_the_last_of_a_gate_counts() -> None:
    assert workload_with_job(ON)
    assert not workload_with_job("")
    assert not workload_with_job(f"{ON},WorkloadWithJob=false")


@pytest.mark.parametrize("text", ["WorkloadWithJob", "WorkloadWithJob=yes", "GenericWorkload=true", f"{ON},", "=true"])
def test_another_gate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected WorkloadWithJob=true or WorkloadWithJob=false, found '"):
        workload_with_job(text)


def test_a_backend_without_gates_refuses_them() -> None:
    with pytest.raises(UsageError, match=r"expected --backend embedded, envtest, virtual, found kind"):
        backend_named(KIND, feature_gates=ON)


@pytest.mark.parametrize("name", [VIRTUAL, EMBEDDED])
def test_a_cluster_has_the_gate(name: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    spec = {"template": template, "scheduling": {"schedulingPolicy": {"gang": {}}}}
    body = orjson.dumps({"metadata": {"name": "j"}, "spec": spec})
    for gates in ("", ON):
        with backend_named(name, feature_gates=gates).start() as cluster:
            made = orjson.loads(cluster.call(Request("POST", JOBS, body)).body)
        assert ("scheduling" in made["spec"]) is (gates == ON)
