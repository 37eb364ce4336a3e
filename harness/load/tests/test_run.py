"""A load from end to end: an embedded cluster, our scheduler, Locust, all as processes; and what is refused."""

import csv
import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import writes
from seatrial.harness.commands.load import exit_status
from seatrial.harness.errors import UsageError
from seatrial.harness.load.record import Sample
from seatrial.harness.load.run import run_load
from seatrial.harness.load.settings import BESIDE, LOAD_LABEL, LoadSettings
from seatrial.harness.subject.services import free_port
from seatrial.harness.tests.command_line import run_command
from seatrial.scheduler.api.transport import Request


def pods_and_namespaces(cluster: EmbeddedCluster) -> tuple[int, list[str]]:
    pods = orjson.loads(cluster.call(Request("GET", "/api/v1/pods")).body)["items"]
    namespaces = orjson.loads(cluster.call(Request("GET", "/api/v1/namespaces")).body)["items"]
    return len(pods), [namespace["metadata"]["name"] for namespace in namespaces]


GANG_ROW, ROOM_ROW = "GANG create to last bound", "QUOTA room to bound"
NODE_ROW, UNCORDON_ROW = "NODE create to bound", "NODE uncordon to bound"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(LoadSettings(rate=40, seconds=2, hold=0.3, users=10, mix="mixed"), id="one-process"),
        pytest.param(
            LoadSettings(rate=40, seconds=1.5, hold=0.3, users=10, mix="cpu", arrivals="constant", processes=2),
            id="two-processes-share-the-plan",
        ),
    ],
)
def test_every_pod_is_bound_once_and_gone_afterwards(
    cluster: EmbeddedCluster, tmp_path: Path, settings: LoadSettings
) -> None:
    assert cluster.endpoint is not None
    file = tmp_path / "samples.jsonl"
    result = run_load(settings, cluster.endpoint.kubeconfig, samples=file)
    planned = len(list(settings.plan().times(settings.seed)))
    assert (result.created, result.bound, result.deleted) == (planned, planned, planned)
    assert result.bound_once
    lives = [msgspec.json.decode(line, type=Sample) for line in file.read_bytes().splitlines()]
    assert len({life.pod for life in lives}) == planned
    for life in lives:
        assert life.bound is not None
        assert life.deleting is not None
        assert life.deleted is not None
        assert life.due <= life.sent < life.bound <= life.deleting - settings.hold + 0.001
        assert life.nodes_seen == 1
    assert sum(second.bound for second in result.per_second) == planned
    assert result.latency_ms["p50"] <= result.latency_ms["p99"] <= result.latency_ms["max"]
    assert result.validity.errors == {}
    left, namespaces = pods_and_namespaces(cluster)
    assert left == 0
    assert not [name for name in namespaces if name.startswith("seatrial-load-")]


def test_pods_that_no_scheduler_wants_are_counted_as_unbound(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    settings = LoadSettings(
        rate=20, seconds=0.5, users=5, mix="cpu", scheduler="absent-scheduler", drain=0.5, arrivals="constant"
    )
    result = run_load(settings, cluster.endpoint.kubeconfig, samples=tmp_path / "samples.jsonl")
    assert (result.created, result.bound, result.unbound) == (10, 0, 10)
    assert not result.bound_once
    assert pods_and_namespaces(cluster)[0] == 0


def test_without_a_file_for_samples_nothing_is_left(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.endpoint is not None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = run_load(LoadSettings(rate=10, seconds=0.5, hold=0.1, mix="cpu"), cluster.endpoint.kubeconfig)
    assert result.created > 0
    assert list(tmp_path.iterdir()) == []
    assert result.as_json()["samples"] is None


def test_a_load_that_no_node_can_hold_is_not_valid(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    mix = tmp_path / "odd.yaml"
    mix.write_text("shapes: [{name: odd, requests: {example.com/fpga: 1}}]")
    settings = LoadSettings(rate=10, seconds=0.3, users=2, mix=str(mix), drain=0.3)
    result = run_load(settings, cluster.endpoint.kubeconfig, samples=tmp_path / "samples.jsonl")
    assert "no node offers example.com/fpga, which the mix requests" in result.invalid_because


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 0),
        ({"valid": False}, 3),
        ({"bound_once": False, "valid": False}, 1),
        ({"created": 0}, 1),
        ({"violations": ["x"]}, 1),
    ],
    ids=["valid", "not-valid", "twice", "none", "violation"],
)
def test_a_script_sees_what_came_of_a_load(change: dict[str, Any], status: int) -> None:
    result = {"valid": True, "bound_once": True, "created": 5, "violations": [], **change}
    assert exit_status(result) == status


def test_an_interrupted_load_leaves_nothing_behind(cluster: EmbeddedCluster) -> None:
    assert cluster.endpoint is not None
    command = [sys.executable, "-m", "seatrial", "load", "--kubeconfig", str(cluster.endpoint.kubeconfig)]
    process = subprocess.Popen(
        [*command, "--seconds", "60", "--rate", "20", "--mix", "cpu", "--hold", "30"],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 as in a terminal
    )
    assert cluster.wait(lambda: pods_and_namespaces(cluster)[0] > 3, within=60)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    left, namespaces = pods_and_namespaces(cluster)
    assert left == 0
    assert not [name for name in namespaces if name.startswith("seatrial-load-")]


def test_locusts_reports_have_the_time_from_creation_to_binding_of_every_pod(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    assert cluster.endpoint is not None
    html, start = tmp_path / "new" / "report.html", tmp_path / "figures"
    settings = LoadSettings(rate=20, seconds=1, hold=0.1, mix="cpu", users=5, html=str(html), csv=str(start))
    result = run_load(settings, cluster.endpoint.kubeconfig)
    with Path(f"{start}_stats.csv").open(newline="") as file:
        counts = {row["Name"]: int(row["Request Count"]) for row in csv.DictReader(file)}
    assert counts == {
        "create pod": result.created,
        "create to bound": result.bound,
        "delete pod": result.deleted,
        "Aggregated": result.created + result.bound + result.deleted,
    }
    report = json.JSONDecoder().raw_decode(html.read_text().partition("window.templateArgs = ")[2])[0]
    assert {row["name"]: row["num_requests"] for row in report["requests_statistics"]} == counts


OWN_USERS = """
from locust import constant, task

from seatrial.testing import pod
from seatrial.testing.load import LoadUser


class Notebook(LoadUser):
    wait_time = constant(0.05)

    @task
    def one(self):
        name = self.create(pod("notebook").resources({"cpu": 1}))
        assert self.bound(name, within=20)
        self.delete(name)
"""


def test_users_of_a_file_are_measured_and_leave_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    file, samples = tmp_path / "users.py", tmp_path / "samples.jsonl"
    file.write_text(OWN_USERS)
    settings = LoadSettings(users=2, seconds=1, locustfile=str(file))
    result = run_load(settings, cluster.endpoint.kubeconfig, samples=samples)
    assert result.created > 2
    assert result.bound_once
    assert (result.deleted, result.validity.errors) == (result.created, {})
    lives = [msgspec.json.decode(line, type=Sample) for line in samples.read_bytes().splitlines()]
    assert {life.shape for life in lives} == {"notebook"}
    assert all(0 <= life.sent <= settings.seconds + 0.1 for life in lives)
    assert not [name for name in pods_and_namespaces(cluster)[1] if name.startswith("seatrial-load-")]


SHAPE = """
from locust import LoadTestShape


class Three(LoadTestShape):
    def tick(self):
        return 3, 10
"""


def test_a_shape_of_the_file_says_how_many_users_there_are(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Each user has one pod, and waits longer than the load takes."""
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(OWN_USERS.replace("0.05", "100") + SHAPE)
    result = run_load(LoadSettings(users=1, seconds=2, locustfile=str(file)), cluster.endpoint.kubeconfig)
    assert (result.created, result.deleted, result.validity.errors) == (3, 3, {})


def test_an_exception_in_a_task_makes_the_load_invalid(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(OWN_USERS.replace("assert self.bound(name, within=20)", "1 / 0"))
    settings = LoadSettings(users=1, seconds=0.5, drain=0.5, locustfile=str(file))
    result = run_load(settings, cluster.endpoint.kubeconfig)
    assert result.validity.errors.keys() == {"task: ZeroDivisionError: division by zero"}
    assert not result.valid


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "expected classes that are a seatrial.testing.load.LoadUser, found none"),
        ("from locust import User\nclass Own(User): pass", "LoadUser, found Own"),
        ("x = 1\ny = x / 0", "line 2: ZeroDivisionError: division by zero"),
    ],
    ids=["no-class", "other-class", "exception"],
)
def test_a_file_without_usable_users_is_refused(cluster: EmbeddedCluster, tmp_path: Path, text: str, why: str) -> None:
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(text)
    with pytest.raises(UsageError) as refusal:
        run_load(LoadSettings(users=1, locustfile=str(file)), cluster.endpoint.kubeconfig)
    assert str(refusal.value).startswith(f"--locustfile {file}: ")
    assert str(refusal.value).endswith(why)
    assert not [name for name in pods_and_namespaces(cluster)[1] if name.startswith("seatrial-load-")]


def test_locusts_page_has_the_time_from_creation_to_binding(cluster: EmbeddedCluster) -> None:
    """A row of its own beside the requests; the opening of connections, which takes longest, is in none."""
    rows: dict[str, int] = {}

    def complete() -> bool:
        with suppress(OSError):
            rows.clear()
            rows.update(_rows(page))
        return rows.get("delete pod", 0) > 0 and rows.get("create to bound") == rows["create pod"]

    with _page(cluster, "rate=20, seconds=1, hold=0.1") as page:
        assert cluster.wait(complete, within=60), rows
        assert rows.keys() == {"create pod", "create to bound", "delete pod", "Aggregated"}


@pytest.mark.parametrize("button", ["Edit", "New"])
def test_locusts_page_starts_no_other_load_and_says_what_to_do(cluster: EmbeddedCluster, button: str) -> None:
    """Edit while the load runs; New after Stop. The button Edit itself is off."""
    with _page(cluster, "rate=20, seconds=60, hold=60") as page:

        def running() -> bool:
            with suppress(OSError):
                return _rows(page).get("create pod", 0) > 3
            return False

        assert cluster.wait(running, within=60)
        assert b'"hide_common_options": true' in _answer(page)
        if button == "New":
            _answer(page, "stop", b"")
        before = _rows(page)["create pod"]
        answer = orjson.loads(_answer(page, "swarm", b"user_count=5&spawn_rate=2"))
        assert answer["success"] is False
        assert "End it with Ctrl-C, and start it again with other --rate" in answer["message"]
        assert _rows(page)["create pod"] >= before


def _answer(port: int, path: str = "", form: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", form, timeout=10) as answer:
        content: bytes = answer.read()
        return content


def _rows(page: int) -> dict[str, int]:
    """Numbers of requests on the page, by name."""
    return {row["name"]: row["num_requests"] for row in orjson.loads(_answer(page, "stats/requests"))["stats"]}


@contextmanager
def _page(cluster: EmbeddedCluster, settings: str) -> Iterator[int]:
    """The port of a load's page."""
    assert cluster.endpoint is not None
    port = free_port()
    program = (
        "import sys; from pathlib import Path; from seatrial.harness.load.run import run_load; "
        "from seatrial.harness.load.settings import LoadSettings; "
        f"run_load(LoadSettings({settings}, mix='cpu', users=5, web_port={port}), Path(sys.argv[1]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(cluster.endpoint.kubeconfig)], stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_users_beside_the_plan_have_figures_of_their_own(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Gangs in both vocabularies, a full quota and nodes; their pods are no part of the latency of the others."""
    assert cluster.endpoint is not None
    also, start = tuple(BESIDE), tmp_path / "figures"
    settings = LoadSettings(rate=5, seconds=8, hold=0.2, mix="cpu", users=3, also=also, csv=str(start))
    result = run_load(settings, cluster.endpoint.kubeconfig, samples=tmp_path / "samples.jsonl")
    assert result.validity.errors == {}
    assert result.bound_once
    assert result.deleted == result.created
    lives = [msgspec.json.decode(line, type=Sample) for line in (tmp_path / "samples.jsonl").read_bytes().splitlines()]
    assert Counter(life.aside for life in lives)[False] == len(list(settings.plan().times(settings.seed)))
    latencies = [1000 * life.latency for life in lives if not life.aside and life.latency is not None]
    assert result.latency_ms["max"] == pytest.approx(max(latencies), abs=0.01)
    rows = {GANG_ROW, NODE_ROW, ROOM_ROW, UNCORDON_ROW}
    assert result.rows.keys() == rows
    of_gangs = [life for life in lives if life.shape in {"gang", "native-gang"}]
    assert result.rows[GANG_ROW]["count"] == len(of_gangs) / 4 >= 2
    assert {life.shape for life in of_gangs} == {"gang", "native-gang"}
    with Path(f"{start}_stats.csv").open(newline="") as file:
        counts = {f"{row['Type']} {row['Name']}": int(row["Request Count"]) for row in csv.DictReader(file)}
    assert {row: counts[row] for row in rows} == {row: figures["count"] for row, figures in result.rows.items()}
    nodes = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes")).body)["items"]
    assert not [node for node in nodes if LOAD_LABEL in node["metadata"]["labels"]]


def test_nodes_beside_the_plan_need_agents_that_care_for_them() -> None:
    with EmbeddedBackend().start() as empty:
        assert empty.endpoint is not None
        with pytest.raises(UsageError, match="with simulated nodes, found none"):
            run_load(LoadSettings(also=("nodes",)), empty.endpoint.kubeconfig)


GANGS_OF_MY_OWN = """
from seatrial.testing.load import GangUser


class Pair(GangUser):
    size = 2
"""


def test_a_file_has_gangs_of_another_size_from_a_ready_class(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(GANGS_OF_MY_OWN)
    result = run_load(LoadSettings(users=2, seconds=1, locustfile=str(file)), cluster.endpoint.kubeconfig)
    assert result.validity.errors == {}
    assert result.created == 2 * result.rows[GANG_ROW]["count"]
    assert result.latency_ms == {}


def test_a_gang_that_no_node_holds_makes_the_load_invalid_and_goes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(GANGS_OF_MY_OWN.replace("size = 2", "requests = {'cpu': 5000}; within = 0.5"))
    result = run_load(LoadSettings(users=1, seconds=0.5, locustfile=str(file)), cluster.endpoint.kubeconfig)
    assert result.validity.errors.keys() == {"gang: not bound within 0.5 s"}
    assert (result.unbound, result.deleted, result.rows) == (4, 4, {})
    assert not result.valid


def test_requests_of_own_users_are_repeated_after_429(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The API server refuses from the first report of progress to the second: the load says so, and loses no pod."""
    assert cluster.endpoint is not None
    file = tmp_path / "users.py"
    file.write_text(OWN_USERS)
    with TroubledWay(cluster.endpoint.kubeconfig) as way:
        turns: Iterator[Callable[[], object]] = iter([partial(way.refuse, 429, writes), way.heal])

        def progress(_: str) -> None:
            if turn := next(turns, None):
                turn()

        result = run_load(LoadSettings(users=1, seconds=4, locustfile=str(file)), way.offered, progress=progress)
        refused = way.refused
    assert result.validity.throttled == refused > 0
    assert (result.deleted, result.validity.errors) == (result.created, {})
    assert result.per_second[-1].second >= 3
    assert f"throttling: the API server answered {refused} requests with 429" in result.invalid_because


NOWHERE = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param("--rate -3", "rate: expected a number above 0, found -3", id="negative-rate"),
        pytest.param("--mix fruit", "no mix 'fruit': expected mixed, whole, shared, bytes, cpu", id="unknown-mix"),
        pytest.param("--users 0", "users: expected 1 or more, found 0", id="no-users"),
        pytest.param("--hold -1", "hold: expected 0 or more seconds, found -1", id="negative-hold"),
        pytest.param("--web --processes 2", "page and reports show one process", id="page-of-two-processes"),
        pytest.param("--locustfile no.py", "--locustfile no.py: expected a file, found none", id="no-locustfile"),
        pytest.param("--locustfile no.py --rate 3", "--rate 3.0 cannot be used with --locustfile", id="rate-of-users"),
        pytest.param("--html . --processes 1", "--html .: expected a file, found a folder", id="report-in-a-folder"),
        pytest.param(
            "--also fruit",
            "also: expected gangs, native-gangs, quotas, nodes, found 'fruit'",
            id="unknown-users-beside",
        ),
        pytest.param("--also nodes --also nodes", "also: expected each name once", id="beside-twice"),
        pytest.param("--kubeconfig missing", "kubeconfig missing: expected a file, found none", id="no-kubeconfig"),
        pytest.param("--kubeconfig nowhere", "http://127.0.0.1:9: no answer to GET", id="unreachable-kubeconfig"),
        pytest.param(
            "--kubeconfig nowhere --fleet default", "--fleet applies to a cluster that this command starts", id="fleet"
        ),
        pytest.param(
            "--kubeconfig nowhere --subject seatrial", "--subject seatrial applies to a cluster", id="subject"
        ),
    ],
)
def test_bad_flags_end_with_two_and_a_sentence(tmp_path: Path, flags: str, message: str) -> None:
    (tmp_path / "nowhere").write_text(NOWHERE)
    words = [str(tmp_path / word) if word == "nowhere" else word for word in flags.split()]
    ended = run_command("load", *words)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
