"""Runs of `seatrial` over a small suite of their own: their verdicts, their page, and what repeats.

These cases judge the harness; the scheduler under test takes no part.
"""

import html
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, moment
from seatrial.scheduler.api.clock import SIM_EPOCH

FEATURES = """
- {id: CARDS, title: Cards, promises: {given: 'A pod gets a card', once: 'A card is given once'}}
- {id: CLIENT, title: 'Other clients', promises: {bound: 'A client binds pods by itself'}}
- {id: LATER, title: 'Not built'}
"""
SUITE = """
import pytest
from seatrial.testing import Capability, gang, node, pod

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("CARDS.given")
@pytest.mark.case("X-1")
def test_a_pod_gets_a_card(cluster, expect):
    cluster.add(node("n1").cards(1))
    cluster.submit(pod("a").gpus(1))
    expect.bound("a")


@pytest.mark.feature("CARDS.once")
@pytest.mark.case("X-2", severity="blocker")
def test_a_card_is_given_once(cluster, expect):
    cluster.add(node("n1").cards(1))
    cluster.submit(pod("a").gpus(1), pod("b").gpus(1))
    assert cluster.wait(lambda: any(cluster.pod(name).spec.node_name for name in "ab"), within=10)
    expect.stable(seconds=5)
    assert sum(bool(cluster.pod(name).spec.node_name) for name in "ab") == 1, "one card, two pods on its node"


def rogue(cluster, *pods):
    for built in pods:
        built.manifest["spec"]["schedulerName"] = "rogue"
        cluster.submit(built)
        name = built.name
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        assert cluster.call("POST", f"/api/v1/namespaces/{cluster.name}/pods/{name}/binding", target).ok


@pytest.mark.feature("CLIENT.bound")
@pytest.mark.case("X-3")
def test_a_rogue_client_gives_one_card_twice(cluster):
    cluster.add(node("n1").cards(1))
    card = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}'
    rogue(cluster, *(pod(name).gpus(1).annotation("scheduling.koordinator.sh/device-allocated", card) for name in "cd"))


@pytest.mark.feature("CLIENT.bound")
@pytest.mark.case("X-4")
def test_a_rogue_client_exceeds_a_quota(cluster):
    cluster.add(node("n1").cpu(4))
    body = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "small"}}
    body["spec"] = {"min": {"cpu": 1}, "max": {"cpu": 1}}
    cluster.create(body, f"/apis/{body['apiVersion']}/namespaces/{cluster.name}/elasticquotas")
    rogue(cluster, *(pod(name).request(cpu=1).quota("small") for name in "ef"))


@pytest.mark.feature("CLIENT.bound")
@pytest.mark.case("X-5")
def test_a_rogue_client_binds_half_a_gang(cluster):
    cluster.add(node("n1").cpu(4))
    cluster.apply(gang("whole", 2))
    first, second = (pod(name).request(cpu=1).in_gang("whole") for name in "gh")
    rogue(cluster, first)
    second.manifest["spec"]["schedulerName"] = "nobody"
    cluster.submit(second)
    cluster.pass_time(200)


@pytest.mark.feature("CLIENT.bound")
@pytest.mark.case("X-6")
def test_a_rogue_client_overcommits_a_numa_node(cluster):
    cluster.add(node("n1").server("cpu-64"))
    cluster.pass_time(5)
    amounts = '{"numaNodeResources":[{"node":0,"resources":{"cpu":"20"}}]}'
    key = "scheduling.koordinator.sh/resource-status"
    rogue(cluster, *(pod(name).request(cpu=20).annotation(key, amounts) for name in "ij"))
"""


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "seatrial", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


class Run:
    """One run of the small suite against a scheduler."""

    def __init__(self, folder: Path, subject: str) -> None:
        (folder / "features.yaml").write_text(FEATURES)
        (folder / "test_cards.py").write_text(SUITE)
        self._process = start(
            folder,
            "run",
            "./test_cards.py",
            "--backend",
            "virtual",
            "--subject",
            subject,
            "--features",
            "features.yaml",
            "--report",
            "report",
            "--json",
        )
        self.report = folder / "report"

    def finish(self) -> None:
        self.done = finish(self._process)
        assert self.done.returncode in {0, 1}, self.done.stderr

    def cases(self) -> dict[str, dict[str, object]]:
        lines = [line for path in self.report.glob("cases*.jsonl") for line in path.read_bytes().splitlines()]
        return {case["case"]: case for case in map(orjson.loads, lines)}

    def rows(self) -> list[str]:
        """The rows of the page's tables, as text without marks."""
        page = (self.report / "signoff.html").read_text()
        matches = re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)
        return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in matches]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run against each of two schedulers, both at the same time."""
    started = {subject: Run(tmp_path_factory.mktemp(subject), subject) for subject in ("inprocess", "random")}
    for run in started.values():
        run.finish()
    return started


def started(request: pytest.FixtureRequest) -> dict[str, Run]:
    """The fixture `runs`, requested late: a fixture of the module would run before what skips a test."""
    runs: dict[str, Run] = request.getfixturevalue("runs")
    return runs


@pytest.fixture
def ours(request: pytest.FixtureRequest) -> Run:
    return started(request)["inprocess"]


@pytest.fixture
def at_random(request: pytest.FixtureRequest) -> Run:
    return started(request)["random"]


@pytest.mark.feature("HIL-2.any-subject")
@pytest.mark.case("VD-001", severity="blocker")
@pytest.mark.needs(Capability.REAL_TIME)
def test_two_schedulers_two_verdicts(ours: Run, at_random: Run) -> None:
    """The same two cases: ours passes both, a scheduler that binds at random gives the card twice and fails there."""
    verdicts = {
        name: {case: results["verdict"] for case, results in run.cases().items() if case in {"X-1", "X-2"}}
        for name, run in (("ours", ours), ("random", at_random))
    }

    assert verdicts["ours"] == {"X-1": "passed", "X-2": "passed"}
    assert verdicts["random"]["X-2"] == "failed"
    assert at_random.done.returncode == 1
    names = [orjson.loads((run.report / "run.json").read_bytes())["subject"]["name"] for run in (ours, at_random)]
    assert names[1] == "random"
    assert names[0] != "random"


PLANTED = {
    "device-once": ("X-3", r"AUD-215 A whole card has one pod: .*/d shares card 0 of n1 with .*/c"),
    "quota": ("X-4", r"AUD-602 The max of a quota holds: .*/f"),
    "gangs": ("X-5", r"AUD-601 A gang has no members or its minimum: .*/whole"),
    "numa": ("X-6", r"AUD-311 The amounts of a NUMA node are not overcommitted: .*/j"),
}


@pytest.mark.case("VD-002", severity="blocker")
@pytest.mark.parametrize(
    "promise", [pytest.param(each, marks=pytest.mark.feature(f"HIL-9.{each}")) for each in PLANTED]
)
@pytest.mark.needs(Capability.REAL_TIME)
def test_a_planted_breach_fails_the_case(ours: Run, promise: str) -> None:
    """A client that is no scheduler breaks an invariant. The case asserts nothing; the auditor fails it by name."""
    case, text = PLANTED[promise]
    results = ours.cases()[case]

    assert results["verdict"] == "failed"
    assert re.search(text, str(results["reason"])), results["reason"]
    assert ours.done.returncode == 1


@pytest.mark.feature("HIL-12.page", "HIL-12.provenance", "HIL-12.allure")
@pytest.mark.case("VD-003", severity="critical")
@pytest.mark.needs(Capability.REAL_TIME)
def test_the_page_shows_each_row_with_its_grade(at_random: Run) -> None:
    """A row without a case is not verified, and a failed promise fails its row. The page is stamped SIMULATED, and has
    the subject and the commit. Allure has a result of each case."""
    rows = at_random.rows()
    page = (at_random.report / "signoff.html").read_text()

    def row(name: str) -> str:
        return next(candidate for candidate in rows if candidate.startswith(name))

    assert "SIMULATED" in page
    assert "failed" in row("CARDS").lower()
    assert "not verified" in row("LATER").lower()
    provenance = orjson.loads((at_random.report / "run.json").read_bytes())["provenance"]
    assert all(word in page for word in ("random", *provenance.values()))
    allure = [orjson.loads(file.read_bytes()) for file in at_random.report.glob("allure-results/*-result.json")]
    assert len(allure) == len(at_random.cases())


@pytest.mark.feature("HIL-10.deterministic")
@pytest.mark.case("VD-004", severity="critical")
@pytest.mark.needs(Capability.REAL_TIME)
def test_the_same_seed_gives_the_same_placements(tmp_path: Path) -> None:
    """Four hours of gangs on 16 nodes in virtual time: the digest of all placements is the seed's."""

    words = ("bench", "gang-day", "--nodes", "16", "--hours", "4", "--json")
    started = [start(tmp_path, *words, "--seed", str(seed)) for seed in (1, 1, 2)]
    done = [finish(process) for process in started]

    assert [each.returncode for each in done] == [0] * 3, "\n".join(each.stderr for each in done)
    first, again, other = (orjson.loads(each.stdout)["digest"] for each in done)
    assert again == first
    assert other != first


STEADY = [10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1, 9.9]
GATES, QUIET = pytest.mark.feature("HIL-11.gates"), pytest.mark.feature("HIL-11.quiet")
SPREAD = [5.0, 30.0, 8.0, 20.0, 11.0, 9.0, 25.0, 14.0]


@pytest.mark.case("VD-005", severity="critical")
@pytest.mark.parametrize(
    ("base", "new", "code"),
    [
        pytest.param(STEADY, [1.5 * value for value in STEADY], 1, id="slower-by-half", marks=GATES),
        pytest.param(STEADY, [1.02 * value for value in STEADY], 0, id="within-the-tolerance", marks=QUIET),
        pytest.param(SPREAD, [1.2 * value for value in SPREAD], 0, id="within-the-spread", marks=QUIET),
    ],
)
def test_a_gate_compares_runs_by_intervals(
    tmp_path: Path, base: Sequence[float], new: Sequence[float], code: int
) -> None:
    """A median worse than the tolerance fails the gate, unless the intervals of both runs overlap."""
    for name, values in (("base", base), ("new", new)):
        with ResultsWriter(tmp_path / name) as writer:
            writer.run(RunInfo(name, moment(SIM_EPOCH), (), "embedded", Subject("ours")))
            writer.case(Case("t::a", "passed"))
            writer.measure("create to bound", "ms", values=list(values))
            writer.finish()

    done = finish(start(tmp_path, "compare", "base", "new"))

    assert done.returncode == code, done.stdout + done.stderr
