"""The audit log: what is recorded, how files are rotated, pages of it (AU-1, D4-7)."""

import asyncio
import errno
import json
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.koordlet import audit
from seatrial.scheduler.koordlet.__main__ import app
from seatrial.scheduler.koordlet.audit import AuditConfig, AuditLog, AuditPages
from seatrial.scheduler.koordlet.tests.setting import Setting
from seatrial.scheduler.serving.http import serve
from seatrial.scheduler.serving.routes import Answer, Routes


class Pages:
    """A log with its pages."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.clock = SimClock()
        self.log = AuditLog(AuditConfig(folder, **config), self.clock)
        self.routes = Routes(Faults())
        self.routes.add("GET", "/events", AuditPages(self.log, self.clock, Random(0)).answer)  # noqa: S311

    def fill(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.log.record(3, "r", f"m{number}")

    def get(self, query: str = "") -> Answer:
        return self.routes.answer("GET", f"/events?{query}")

    def page(self, query: str = "") -> tuple[list[str], str]:
        """Messages and the token of the next page, which lines and JSON have alike."""
        body = json.loads(self.routes.answer("GET", f"/events?{query}", accept="application/json").body)
        return [event["message"] for event in body["Events"]], body["NextPageToken"]


def test_what_the_agent_changes_is_recorded(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "root", gates={"BECPUEvict": True}, audit=AuditConfig(tmp_path))
    setting.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65})
    setting.load[setting.pod("a")] = 3.0, 0
    setting.pod("b", "besteffort", "BE")
    setting.run(5)
    setting.load["kubepods/burstable/poda"] = 4.5, 0
    setting.run(3)
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    written = [event for event in events if event["reason"] == "UpdateCgroups"]
    assert {"createdAt", "reason", "message"} == written[0].keys()
    assert f"update {setting.root.cgroup}/cpuset/kubepods/besteffort/cpuset.cpus to 0-1" in {
        event["message"] for event in written
    }
    (whole,) = [event for event in events if event["message"] == "update BE group to cpuset: 0-1"]
    assert (whole["type"], whole["reason"]) == ("node", "AdjustBEByNodeCPUUsage")


def test_an_eviction_is_recorded_with_its_pod(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "root", gates={"BEMemoryEvict": True}, audit=AuditConfig(tmp_path, verbosity=1))
    setting.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 70})
    setting.load[setting.pod("b", "besteffort", "BE")] = 0.1, 14 << 30
    setting.root.memory_used = 14 << 30
    setting.run(5)
    (event,) = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert {
        "type": "pod",
        "namespace": "d",
        "name": "b",
        "reason": "trigger by koordlet feature BEMemoryEvict",
        "message": "trigger by koordlet feature BEMemoryEvict, kill pod: b",
    }.items() <= event.items()


def test_pages_are_newest_first_and_each_is_given_once(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.fill(5)
    messages, token = pages.page("size=2")
    assert messages == ["m4", "m3"]
    pages.fill(1, 5)
    assert pages.page(f"size=2&pageToken={token}") == (["m2", "m1"], token)
    assert pages.page(f"pageToken={token}") == (["m0"], "")
    assert pages.get(f"pageToken={token}").code == 409
    lines = pages.get("size=1")
    assert json.loads(lines.body)["message"] == "m5"
    assert lines.headers["Next-Page-Token"]
    assert pages.get("size=x").headers == {}


def test_requests_that_cannot_be_answered(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    answers = [pages.get(query) for query in ("size=2049", "size=-1", "pageToken=a")]
    assert [(answer.code, answer.body) for answer in answers] == [
        (400, b"size(2049) exceeds the limit(2048)\n"),
        (400, b"size(-1) exceeds the limit(2048)\n"),
        (409, b"invalid pageToken a\n"),
    ]
    assert pages.page() == ([], "")


def test_readers_are_forgotten(tmp_path: Path) -> None:
    """The fifth drives out the one that was asked longest ago; ten minutes drive out any."""
    pages = Pages(tmp_path)
    pages.fill(9)
    tokens = [pages.page("size=1")[1] for _ in range(4)]
    assert pages.page(f"size=1&pageToken={tokens[0]}")[1] == tokens[0]
    pages.page("size=1")
    assert [pages.get(f"size=0&pageToken={token}").code for token in tokens] == [200, 409, 200, 200]
    pages.clock.advance(601.0)
    assert pages.get(f"pageToken={tokens[0]}").code == 409


def test_files_are_rotated_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With names by the second; what is no event is left out of pages."""
    monkeypatch.setattr(audit, "FILE_SIZE", 100)
    pages = Pages(tmp_path, space=300)
    pages.fill(8)
    names = sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir())
    assert names == ["2.log", "3.log"]
    assert pages.page()[0] == ["m7", "m6", "m5", "m4"]
    (tmp_path / "audit.log").write_text('{"message": "new"}\n{"mess')
    assert pages.page()[0] == ["new", "m7", "m6", "m5", "m4"]


def test_a_disk_that_is_full_costs_events_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    pages = Pages(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        pages.fill(2)
    assert caplog.text.count("No space left on device; events are lost") == 1
    pages.fill(1)
    assert pages.page()[0] == ["m0"]


def test_pages_by_http(tmp_path: Path) -> None:
    """The header of the request decides about the form, that of the answer has the token."""
    pages = Pages(tmp_path)
    pages.fill(3)

    def get(port: int, **headers: str) -> tuple[bytes, str | None]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/events?size=1", headers=headers)
        with urllib.request.urlopen(request) as response:  # noqa: S310 our own address
            return response.read(), response.headers["Next-Page-Token"]

    async def main() -> None:
        server = await serve(pages.routes, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        lines, token = await asyncio.to_thread(get, port)
        assert (json.loads(lines)["message"], bool(token)) == ("m2", True)
        body, token = await asyncio.to_thread(get, port, Accept="application/json")
        assert (json.loads(body)["Events"][0]["message"], token) == ("m2", None)
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--audit-verbose", "-1"], "expected 0 or more"),
        (["--audit-max-disk-space-mb", "0"], "expected 0 or more, and 1 MiB to 1 TiB, found 3 and 0"),
        (["--audit-log-dir", "/dev/null/x"], "--audit-log-dir: expected a folder, found '/dev/null/x'"),
    ],
)
def test_settings_without_meaning_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    config = tmp_path / "config"
    cluster = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    context = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    plain = {"clusters": cluster, "contexts": context, "current-context": "c", "users": [{"name": "u", "user": {}}]}
    config.write_bytes(msgspec.json.encode(plain))
    assert app(["--kubeconfig", str(config), "--feature-gates", "AuditEvents=true", *words]) == 2
    assert message in capsys.readouterr().err
