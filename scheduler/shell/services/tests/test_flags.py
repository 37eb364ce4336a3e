"""Debug flags: what is answered word for word, and what is logged afterwards."""

import json
import logging

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.serving.routes import Routes
from seatrial.scheduler.shell.services.flags import Flags
from seatrial.scheduler.tests.rig import Rig

LOGGER = "seatrial.scheduler.shell.services.tests.flags"


def routes_for(rig: Rig) -> Routes:
    routes = Routes(Faults())
    Flags(rig.core.handle.debug, logging.getLogger(LOGGER)).install(routes)
    return routes


@pytest.mark.parametrize(
    ("flag", "value", "code", "words"),
    [
        pytest.param("v", "5", 200, "successfully set klog.logging.verbosity to 5", id="verbosity"),
        pytest.param("s", "100", 200, "successfully set debugTopNScores to 100", id="scores"),
        pytest.param("s", "-1", 200, "successfully set debugTopNScores to -1", id="scores-off-by-a-negative"),
        pytest.param("f", "true", 200, "successfully set debugFilterFailure to true", id="failures"),
        pytest.param("d", "true", 200, "successfully set debugFilterFailure to true", id="diagnoses"),
        pytest.param("db", "0", 200, "successfully set debugFilterFailure to false", id="diagnoses-at-once"),
        pytest.param("f", "F", 200, "successfully set debugFilterFailure to false", id="failures-off"),
        pytest.param(
            "v",
            "x",
            400,
            'failed set klog.logging.verbosity x: strconv.ParseInt: parsing "x": invalid syntax',
            id="verbosity-is-no-number",
        ),
        pytest.param(
            "s",
            "100\n",
            400,
            'failed set debugTopNScores 100\n: strconv.Atoi: parsing "100\\n": invalid syntax',
            id="a-line-too-many",
        ),
        pytest.param(
            "f",
            "yes",
            400,
            'failed set debugFilterFailure yes: strconv.ParseBool: parsing "yes": invalid syntax',
            id="neither-true-nor-false",
        ),
    ],
)
def test_answers(flag: str, value: str, code: int, words: str) -> None:
    answer = routes_for(Rig()).answer("PUT", f"/debug/flags/{flag}", value.encode())
    assert (answer.code, answer.body.decode(), answer.content_type.partition(";")[0]) == (
        code,
        f"{words}\n",
        "text/plain",
    )


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_other_methods_are_refused(method: str) -> None:
    answer = routes_for(Rig()).answer(method, "/debug/flags/s")
    assert (answer.code, answer.body) == (406, b"unsupported http method\n")


@pytest.mark.parametrize("path", ["/debug/flags", "/debug/flags/", "/debug/flags/unknown"])
def test_an_index_of_flags(path: str) -> None:
    answer = routes_for(Rig()).answer("GET", path)
    assert answer.content_type.startswith("text/html")
    for flag in ("d", "db", "f", "s", "v"):
        assert f'<a href="/debug/flags/{flag}">' in answer.body.decode()


def test_verbosity_is_the_loggers_level() -> None:
    routes = routes_for(Rig())
    for value, level in (("0", logging.WARNING), ("1", logging.INFO), ("5", logging.DEBUG)):
        routes.answer("PUT", "/debug/flags/v", value.encode())
        assert logging.getLogger(LOGGER).level == level


def cluster() -> Rig:
    rig = Rig()
    rig.node("large", cpu="64")
    rig.node("small", cpu="8")
    rig.node("tiny", cpu="1")
    return rig


def test_scores_are_logged_as_a_table_of_the_best(caplog: pytest.LogCaptureFixture) -> None:
    rig = cluster()
    routes_for(rig).answer("PUT", "/debug/flags/s", b"1")
    with caplog.at_level(logging.INFO, "seatrial.scheduler.core.cycle"):
        rig.submit(pod("p").request(cpu="4", memory="1Gi"))
        rig.run()
    (message,) = [record.getMessage() for record in caplog.records]
    title, head, rule, *rows = message.splitlines()
    assert title.startswith("Top1 scores for Pod: default/p, feasibleNodes: 2, plugins:[Coscheduling DeviceShare Dyn")
    assert head.startswith("| # | Pod | Node | Score | Coscheduling | DeviceShare | ")
    assert rule.startswith("| --- | --- | --- | ---:| ---:|")
    assert len(rows) == 1
    number, name, node, total, *scores = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert (number, name, node) == ("0", "default/p", rig.where("p")), "the best is where the pod went"
    assert int(total) == sum(map(int, scores))
    assert head.count("|") == rule.count("|") == rows[0].count("|")


def test_one_feasible_node_is_not_scored(caplog: pytest.LogCaptureFixture) -> None:
    rig = cluster()
    routes_for(rig).answer("PUT", "/debug/flags/s", b"10")
    with caplog.at_level(logging.INFO, "seatrial.scheduler.core.cycle"):
        rig.submit(pod("p").request(cpu="32"))
        rig.run()
    assert rig.where("p") == "large"
    assert not caplog.records


def test_failures_are_logged_node_by_node(caplog: pytest.LogCaptureFixture) -> None:
    rig = cluster()
    routes = routes_for(rig)
    routes.answer("PUT", "/debug/flags/f", b"true")
    with caplog.at_level(logging.INFO, "seatrial.scheduler.core.cycle"):
        rig.submit(pod("p").request(cpu="4"))
        rig.run()
        routes.answer("PUT", "/debug/flags/f", b"false")
        rig.submit(pod("q").request(cpu="4"))
        rig.run()
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        'Failed to filter for Pod "default/p" on Node "tiny" (pass 0), failedPlugin: NodeResourcesFit,'
        " reason: Insufficient cpu"
    )


def diagnoses(rig: Rig, caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    """What was said before the JSON, and the JSON, of each diagnosis that was logged."""
    rig.clock.advance(0)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("dump diagnosis")]
    return [(head, json.loads(body)) for head, _, body in (line.partition("$") for line in lines)]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_account_of_a_failed_cycle(caplog: pytest.LogCaptureFixture, at_once: bool) -> None:
    caplog.set_level(logging.INFO, "seatrial.scheduler")
    rig = Rig()
    routes = routes_for(rig)
    routes.answer("PUT", "/debug/flags/d", b"true")
    routes.answer("PUT", "/debug/flags/db", b"true" if at_once else b"false")
    rig.node("small", cpu="1")
    rig.node("closed", unschedulable=True)
    rig.node("other", cpu="2")
    rig.submit(pod("p").request(cpu="4"))
    rig.run()
    ((head, result),) = diagnoses(rig, caplog)
    assert head == "dump diagnosis for default/p, targetPod: default/p/uid-p: "
    assert str(result.pop("timestamp")).endswith("Z")
    assert result == {
        "questionedKey": "default/p",
        "isRootCausePod": True,
        "scheduleDiagnosis": {
            "alreadyWaitForBound": 0,
            "nodeFailedDetails": [
                {"failedPlugin": "NodeResourcesFit", "reason": "Insufficient cpu", "failedNodes": ["other", "small"]},
                {
                    "failedPlugin": "NodeUnschedulable",
                    "reason": "node(s) were unschedulable",
                    "failedNodes": ["closed"],
                },
            ],
        },
        "preemptionDiagnosis": {
            "dryRunFilterDiagnosis": None,
            "otherDiagnosis": None,
            "failedMessage": "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        },
    }


def test_nothing_is_told_of_pods_that_found_a_node_or_with_the_flag_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seatrial.scheduler")
    rig = Rig()
    routes = routes_for(rig)
    rig.node("n")
    rig.submit(pod("too-large").request(cpu="100"))
    rig.run()
    routes.answer("PUT", "/debug/flags/d", b"true")
    rig.submit(pod("small").request(cpu="1"))
    rig.run()
    assert diagnoses(rig, caplog) == []
