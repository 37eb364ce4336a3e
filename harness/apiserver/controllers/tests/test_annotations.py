"""Numbers in annotations and names that clients write: what is none counts as none, for every controller."""

import pytest

from seatrial.harness.apiserver.controllers.counts import scaled
from seatrial.harness.apiserver.controllers.jobpods import INDEX, index_of
from seatrial.harness.apiserver.controllers.rollouts import REVISION, revision
from seatrial.harness.apiserver.controllers.tests.bench import running, workload


@pytest.mark.parametrize("text", ["", "\u00b2", "9" * 5000, "1_0", "x", "1.5", "-1"])
def test_a_text_that_is_no_number_counts_as_none(text: str) -> None:
    assert revision({"metadata": {"annotations": {REVISION: text}}}) == 0
    assert index_of({"metadata": {"annotations": {INDEX: text}}}) is None
    assert scaled(f"{text.removeprefix('-1')}%", 10, up=True) == 0


def test_a_foreign_revision_does_not_stop_the_deployments_of_others() -> None:
    """A ReplicaSet that looks like one of a Deployment, with revisions that `int()` reads or fails on."""
    with running() as bench:
        for number, text in enumerate(["\u00b2", "9" * 5000]):
            foreign = workload("mine", 0)
            foreign["metadata"] = {
                "name": f"foreign{number}",
                "annotations": {REVISION: text},
                "labels": {"app": "mine"},
            }
            bench.create("replicasets", foreign)
        for name in ("mine", "other"):
            bench.create("deployments", workload(name, 1))
        bench.settle(10)
        assert all(bench.status("deployments", name).get("readyReplicas") == 1 for name in ("mine", "other"))
