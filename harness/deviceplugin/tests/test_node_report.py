"""The slices of a machine's drivers on an API server: taints of ill cards, and slices that somebody deleted."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.virtual import VirtualBackend, VirtualCluster
from seatrial.harness.deviceplugin.node_report import NodeReport
from seatrial.harness.nodes.hardware import NodeHardware, machine_of
from seatrial.harness.nodes.slices import SLICES, Way
from seatrial.scheduler.api.transport import Request
from seatrial.scheduler.api.wire import to_json


def call(cluster: VirtualCluster, method: str, path: str, body: Any = None) -> Any:
    request = Request(method, path, b"" if body is None else to_json(body))
    return json.loads(accepted(cluster.call(request), path).body)


def specs(cluster: VirtualCluster) -> list[dict[str, Any]]:
    return [item["spec"] for item in call(cluster, "GET", SLICES)["items"]]


@contextmanager
def reporting(model: str, count: int, way: Way) -> Iterator[tuple[VirtualCluster, NodeHardware, NodeReport]]:
    hardware = NodeHardware("m1", machine_of({"name": "m1", "devices": [{"model": model, "count": count}]}), seed=0)
    with VirtualBackend(seed=1).start() as cluster:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m1"}}
        call(cluster, "POST", "/api/v1/nodes", node)
        report = NodeReport(cluster.transport, cluster.clock, "m1", hardware, dra=way)
        report.start()
        cluster.pass_time(1)
        yield cluster, hardware, report
        report.stop()


def test_an_ill_card_has_a_taint_until_it_is_well() -> None:
    with reporting("a10", 2, "whole") as (cluster, hardware, report):

        def taints() -> list[str]:
            (spec,) = specs(cluster)
            return [taint["value"] for device in spec["devices"] for taint in device.get("taints") or ()]

        generations = [specs(cluster)[0]["pool"]["generation"]]
        assert taints() == []
        undo = faults.apply(hardware.table, 1, "critical", {"xid": 79}, now=0.0)
        for ill in (True, False):
            if not ill:
                undo(1.0)
            report.refresh()
            cluster.pass_time(1)
            assert taints() == ["Xid79"] * ill
            generations.append(specs(cluster)[0]["pool"]["generation"])
        assert generations == sorted(set(generations))


@pytest.mark.parametrize(("deleted", "down"), [(1, False), (2, False), (1, True)])
def test_deleted_slices_are_written_again_with_one_generation(deleted: int, *, down: bool) -> None:
    """A pool of several slices: all of them say the same generation and number, or schedulers leave the pool alone."""
    with reporting("ascend-910b3", 8, "partitions") as (cluster, hardware, report):
        names = [item["metadata"]["name"] for item in call(cluster, "GET", SLICES)["items"]]
        assert len(names) == 2
        before = specs(cluster)
        report.refresh()
        cluster.pass_time(1)
        if down:
            report.stop()
        for name in names[:deleted]:
            call(cluster, "DELETE", f"{SLICES}/{name}")
        if down:
            NodeReport(cluster.transport, cluster.clock, "m1", hardware, dra="partitions").start()
        cluster.pass_time(5)
        pools = [spec["pool"] for spec in specs(cluster)]
        assert {pool["resourceSliceCount"] for pool in pools} == {len(names)} == {len(pools)}
        assert len({pool["generation"] for pool in pools}) == 1

        def shown(all_: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**spec, "pool": None} for spec in all_]

        assert shown(specs(cluster)) == shown(before)
