"""Both transports: the same requests get the same responses in process and over HTTPS (API-A24)."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, bare_server, config, pod
from seatrial.harness.apiserver.tests.serving import Served, served
from seatrial.harness.apiserver.transport.inprocess import InProcessTransport
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Request,
    Response,
)

TIMES = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"')
UIDS = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VERSIONS = re.compile(rb'"resourceVersion":"(\d+)"')

Step = tuple[str, str, bytes, str]


def step(method: str, path: str, body: Any = None, kind: str = JSON) -> Step:
    return method, path, b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body), kind


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.builds(lambda name: step("POST", CONFIGS, config(name, labels={"x": "y"}, k="v")), NAMES),
    st.builds(lambda name: step("POST", PODS, pod(name)), NAMES),
    st.builds(lambda name: step("POST", f"{PODS}/{name}/binding", {"target": {"name": "n"}}), NAMES),
    st.builds(lambda name: step("GET", f"{PODS}/{name}"), NAMES),
    st.builds(lambda name: step("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0}), NAMES),
    st.builds(lambda name: step("DELETE", f"{CONFIGS}/{name}"), NAMES),
    st.builds(lambda name: step("PUT", f"{CONFIGS}/{name}", config(name, k="w")), NAMES),
    st.builds(
        lambda name: step("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}}, MERGE_PATCH), NAMES
    ),
    st.builds(
        lambda name: step("PATCH", f"{CONFIGS}/{name}", [{"op": "test", "path": "/data/k", "value": "w"}], JSON_PATCH),
        NAMES,
    ),
    st.builds(
        lambda name: step("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC_MERGE_PATCH), NAMES
    ),
    st.builds(
        lambda name: step(
            "PATCH",
            f"{CONFIGS}/{name}?fieldManager=m",
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "z"}},
            APPLY_PATCH,
        ),
        NAMES,
    ),
    st.sampled_from(
        [
            step("GET", f"{CONFIGS}?labelSelector=x%3Dy"),
            step("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn"),
            step("GET", f"{CONFIGS}?limit=1"),
            step("GET", "/nowhere"),
            step("POST", PODS, b"{"),
            step("GET", "/version"),
            step("POST", PODS, {"spec": []}),
            step("PATCH", f"{PODS}/a", {}, "x/y"),
            step("DELETE", CONFIGS),
            step("GET", f"{PODS}?resourceVersion=x"),
            step("POST", f"{PODS}?dryRun=All", pod("c")),
        ]
    ),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Served]:
    with served(bare_server) as api:
        yield api


def plain(code: int, body: bytes, base: int) -> tuple[int, bytes]:
    """An answer without what two servers cannot have alike; revisions count from where the steps began."""
    body = VERSIONS.sub(lambda item: b'"resourceVersion":"+%d"' % (int(item[1]) - base), body)
    body = re.sub(rb'"continue":"[^"]*"', b'"continue":""', body)
    return code, UIDS.sub(b"UID", TIMES.sub(b'"TIME"', body))


@settings(max_examples=25)
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_both_transports_give_the_same_responses(place: Served, steps: list[Step]) -> None:
    clock = SimClock()
    inside = InProcessTransport(bare_server(clock), clock)
    clock.settle()
    inside.call(Request("DELETE", CONFIGS))
    here = int(orjson.loads(inside.call(Request("GET", CONFIGS)).body)["metadata"]["resourceVersion"])
    with place.connect() as wire:
        wire.ask("DELETE", CONFIGS)
        wire.ask("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
        wire.ask("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0})
        there = int(wire.ask("GET", CONFIGS)[1]["metadata"]["resourceVersion"])
        for method, path, body, kind in steps:
            answers: list[Response] = []
            inside.send(Request(method, path, body, kind), answers.append)
            assert not answers  # never from inside the call
            clock.settle()
            (answer,) = answers
            wire.send(wire.request(method, path, body, content_type=kind))
            code, result = wire.answer()
            data = result if isinstance(result, bytes) else orjson.dumps(result)
            expected = answer.body if isinstance(result, bytes) else orjson.dumps(orjson.loads(answer.body))
            assert plain(code, data, there) == plain(answer.code, expected, here)


def test_a_stream_passes_lines_and_its_end_on() -> None:
    clock = SimClock()
    inside = InProcessTransport(build_server(clock), clock)
    clock.settle()
    lines: list[Any] = []
    ends: list[Response] = []
    inside.stream(
        Request("GET", f"{CONFIGS}?watch=1&timeoutSeconds=5&resourceVersion=0&labelSelector=x"),
        lambda line: lines.append(orjson.loads(line)),
        ends.append,
    )
    clock.settle()
    for name in ("a", "b"):
        inside.call(Request("POST", CONFIGS, orjson.dumps(config(name, labels={"x": "y"})), JSON))
    clock.settle()
    assert [line["object"]["metadata"]["name"] for line in lines] == ["a", "b"]
    assert not ends
    clock.advance(5)
    assert [end.code for end in ends] == [200]


def test_a_refused_stream_ends_with_the_error() -> None:
    clock = SimClock()
    inside = InProcessTransport(build_server(clock), clock)
    ends: list[Response] = []
    inside.stream(Request("GET", f"{CONFIGS}?watch=1&resourceVersion=99999"), lambda _: None, ends.append)
    clock.settle()
    assert [end.code for end in ends] == [504]


def test_a_closed_stream_passes_nothing_on() -> None:
    clock = SimClock()
    server = build_server(clock)
    inside = InProcessTransport(server, clock)
    lines: list[bytes] = []
    ends: list[Response] = []
    stream = inside.stream(Request("GET", f"{CONFIGS}?watch=1"), lines.append, ends.append)
    stream.close()
    clock.settle()
    other = inside.stream(Request("GET", f"{CONFIGS}?watch=1&labelSelector=none"), lines.append, ends.append)
    clock.settle()
    other.close()
    other.close()
    clock.settle()
    assert (lines, ends, server.reads.watches) == ([], [], 0)
