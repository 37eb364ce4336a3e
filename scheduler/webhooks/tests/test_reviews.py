"""Admission reviews and responses, and the process that serves them."""

import base64
import http.client
import json
import select
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.webhooks.registration import configurations
from seatrial.scheduler.webhooks.reviews import MUTATE, VALIDATE, routes

PATIENCE = 60.0


def review(requests: dict[str, Any]) -> dict[str, Any]:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "resources": {"requests": requests}}]}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u1", "operation": "CREATE", "object": pod},
    }


def ask(path: str, body: Any) -> tuple[int, Any]:
    answer = routes(Faults()).answer("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    return answer.code, json.loads(answer.body) if answer.code == 200 else answer.body.decode()


def test_mutating() -> None:
    _, body = ask(MUTATE, review({GPU: "200"}))

    response = body["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u1", True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == [
        {
            "op": "replace",
            "path": "/spec/containers/0/resources/requests",
            "value": {GPU_CORE: "200", GPU_MEMORY_RATIO: "200", GPU_SHARED: "2"},
        }
    ]


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
def test_pods_without_devices_pass(path: str) -> None:
    _, body = ask(path, review({"cpu": "1"}))

    assert body["response"] == {"uid": "u1", "allowed": True}


def test_validating() -> None:
    _, body = ask(VALIDATE, review({GPU: "150"}))

    assert body["response"]["allowed"] is False
    assert body["response"]["status"] == {
        "code": 403,
        "reason": "Forbidden",
        "message": 'pod.spec.containers[*].resources.requests: Invalid value: "150":'
        " the requested GPU must be percentage of 100",
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"no", "found no JSON object", id="no-json"),
        pytest.param({"kind": "Pod"}, "expected an AdmissionReview of admission.k8s.io/v1", id="another-kind"),
    ],
)
def test_invalid_reviews(body: Any, message: str) -> None:
    code, answer = ask(MUTATE, body)

    assert code == 400
    assert message in answer


def test_a_review_that_raises_an_exception_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod `poison` gets 500 with the ID of the fault; the next pod is admitted by the same routes."""

    def failing(pod: dict[str, Any]) -> list[str]:
        if pod["metadata"]["name"] == "poison":
            raise TypeError("a fault")
        return []

    monkeypatch.setattr("seatrial.scheduler.webhooks.reviews.problems", failing)
    faults = Faults()
    served = routes(faults)
    codes = []
    for name in ("poison", "p"):
        body = review({"cpu": "1"})
        body["request"]["object"]["metadata"]["name"] = name
        codes.append(served.answer("POST", VALIDATE, json.dumps(body).encode()).code)
    assert codes == [500, 200]
    assert faults.counts == {f"POST {VALIDATE}": 1}


def test_registration_for_one_namespace() -> None:
    statuses = configurations("https://h:1", b"pem", namespace="team")

    assert [entry["kind"] for entry in statuses] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    for entry in statuses:
        webhook = entry["webhooks"][0]
        assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"pem"


def test_without_mutation_only_validation_is_registered() -> None:
    statuses = configurations("https://h:1", b"pem", mutating=False)

    assert [entry["kind"] for entry in statuses] == ["ValidatingWebhookConfiguration"]


def closes(line: http.client.HTTPConnection, path: str, body: bytes) -> bool:
    """Whether the answer to a review ends its connection."""
    line.request("POST", path, body)
    answer = line.getresponse()
    assert json.load(answer)["response"]["allowed"]
    return answer.headers.get("Connection") == "close"


def test_the_process_answers_over_https(tmp_path: Path) -> None:
    """After SIGTERM it continues for `--drain` seconds, with connections that end after one answer, or until the next
    signal."""
    command = [sys.executable, "-m", "seatrial.scheduler.webhooks", "--port", "0", "--cert-dir", str(tmp_path)]
    command += ["--drain", str(2 * PATIENCE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], PATIENCE)[0]
            mutating, _ = yaml.safe_load_all(process.stdout.read())
            client = mutating["webhooks"][0]["clientConfig"]
            context = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
            body = json.dumps(review({GPU: "100"})).encode()
            request = urllib.request.Request(client["url"], body)  # noqa: S310 it is ours
            with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:  # noqa: S310
                assert json.load(answer)["response"]["patchType"] == "JSONPatch"
            where = urllib.parse.urlsplit(client["url"])
            line = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=PATIENCE, context=context)
            assert not closes(line, where.path, body)

            process.terminate()

            while not closes(line, where.path, body):  # the signal may arrive after the next request
                pass
            assert closes(line, where.path, body)  # a new connection: the process still listens
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
