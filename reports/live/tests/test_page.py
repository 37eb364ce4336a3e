"""`seatrial up --web` as a user has it: the page in a browser, with pods that wait and a pod that is placed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.harness.subject.services import ask
from seatrial.harness.tests.command_line import run_command
from seatrial.reports.browser import Browser
from seatrial.reports.tests.test_browser import OUTSIDE
from seatrial.scheduler.api.builders import gang, pod, quota
from seatrial.scheduler.api.podgroup import PODGROUPS_PATH
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.transport import Request

WITHIN = 60.0  # seconds until what is on its way must be on the page
MARKUP = "<script>document.title = 'run'</script><b>bold</b>"
DIALOG = "document.getElementById('dialog').innerText"


class Up:
    """A cluster with its page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, {"XDG_STATE_HOME": str(folder / "state")}
        started = subprocess.run(
            [sys.executable, "-m", "seatrial", "up", "--web", "--detach", "--kubeconfig", "K"],
            cwd=folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert started.returncode == 0, started.stderr
        self.output = started.stdout
        self.address = (folder / "state/seatrial/clusters/seatrial.web").read_text()
        self._api = RemoteTransport(load_access(folder / "K"), PumpedClock())

    def seatrial(self, *words: str) -> "CompletedProcess[str]":
        return run_command(*words, folder=self.folder, environment=self.environment)

    def post(self, path: str, manifest: Any) -> None:
        where, _, plural = path.rpartition("/")
        request = Request("POST", f"{where}/namespaces/default/{plural}", orjson.dumps(manifest))
        assert self._api.call(request).ok

    def submit(self) -> None:
        """A pod that is placed, two that wait, a gang, a quota, and an event with markup."""
        self.post(PODGROUPS_PATH, gang("short", 2).manifest)
        self.post(QUOTAS_PATH, quota("team").min(cpu=1).max(cpu=2).manifest)
        self.post("/api/v1/pods", pod("placed").gpu_share(50).manifest)
        self.post("/api/v1/pods", pod("huge").nvidia(64).quota("team").manifest)
        self.post("/api/v1/pods", pod("lonely").request(cpu=1).in_gang("short").manifest)
        event = {"metadata": {"name": "e"}, "type": "Warning", "reason": MARKUP, "message": MARKUP}
        self.post("/api/v1/events", event | {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "huge"}})


@contextmanager
def running(folder: Path) -> Iterator[Up]:
    up = Up(folder)
    try:
        yield up
    finally:
        up.seatrial("down", "--all")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up")) as up:
        up.submit()
        yield up


def wait(browser: Browser, expression: str) -> Any:
    """The value of an expression once it is true."""
    deadline = time.monotonic() + WITHIN
    while not (answer := browser.ask(expression)):
        assert time.monotonic() < deadline, (expression, browser.ask("document.body.innerText"))
        time.sleep(0.05)
    return answer


def opened(browser: Browser, up: Up, **options: Any) -> None:
    browser.open(up.address, **options)
    wait(browser, "document.querySelectorAll('.card').length > 40")
    wait(browser, "document.getElementById('decisions').innerText.includes('placed')")
    wait(browser, "document.getElementById('pending').innerText.includes('Insufficient nvidia.com/gpu')")


@pytest.mark.parametrize("width", [390, 1200, 1920])
def test_no_box_is_wider_than_its_room(browser: Browser, up: Up, width: int) -> None:
    opened(browser, up, width=width)
    assert browser.ask(OUTSIDE) == []
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    sideways = (
        "[...document.querySelectorAll('.list, section, .entry')].filter(box => box.scrollWidth > box.clientWidth)"
    )
    assert browser.ask(f"{sideways}.map(box => box.className)") == []


def test_light_and_dark(browser: Browser, up: Up) -> None:
    colors = []
    for dark in (False, True):
        opened(browser, up, dark=dark)
        colors.append(
            browser.ask("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        )
    light, dark_ = colors
    assert all(one != other for one, other in zip(light, dark_, strict=True))


def test_a_pending_pod_shows_its_reasons(browser: Browser, up: Up) -> None:
    opened(browser, up)
    browser.ask("[...document.querySelectorAll('#pending button')].find(each => each.textContent === 'huge').click()")
    text = wait(browser, f"{DIALOG}.includes('Why nodes are rejected now') && {DIALOG}")
    assert "NodeResourcesFit" in text
    assert "0 of 11 nodes fit now" in text
    assert "quota team" in text
    assert "64" in text


def test_the_decision_of_a_placed_pod_shows_its_scores(browser: Browser, up: Up) -> None:
    opened(browser, up)
    browser.ask(
        "[...document.querySelectorAll('#decisions button')].find(each => each.textContent === 'placed').click()"
    )
    text = wait(browser, f"{DIALOG}.includes('selected') && {DIALOG}")
    assert "Placed on " in text
    rows = (
        "[...document.querySelectorAll('#dialog-body table')]"
        ".map(each => [...each.rows].map(row => [...row.cells].map(cell => cell.innerText)))"
    )
    totals, by_plugin = browser.ask(rows)[:2]
    assert by_plugin[0][:2] == ["plugin", "weight"]
    assert "DeviceShare" in [line[0] for line in by_plugin]
    for place, (node, total, _) in enumerate(totals[1:]):
        assert by_plugin[0][2 + place] == node
        scored = [(int(line[1]), int(line[2 + place].split(" → ")[-1].replace(",", ""))) for line in by_plugin[1:]]
        assert sum(weight * score for weight, score in scored) == int(total.replace(",", ""))


def test_a_card_shows_its_pod_and_keys_go_from_card_to_card(browser: Browser, up: Up) -> None:
    opened(browser, up)
    focus = "document.querySelector('.card[tabindex=\"0\"]').focus()"
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
    browser.ask(focus)
    first = browser.ask("document.activeElement.ariaLabel")
    for key in ("ArrowRight", "ArrowDown"):
        browser.ask(press % key)
    assert browser.ask("document.activeElement.ariaLabel").split(",")[0] != first.split(",")[0]
    assert "a10-1 gpu 1" in browser.ask("document.getElementById('tip').textContent")
    assert browser.ask("document.querySelectorAll('.card[tabindex=\"0\"]').length") == 1
    browser.ask(
        "[...document.querySelectorAll('.card')].find(card => card.ariaLabel.includes('default/placed')).click()"
    )
    assert "default/placed" in wait(browser, DIALOG)


def test_texts_of_objects_are_never_markup(browser: Browser, up: Up) -> None:
    opened(browser, up)
    assert MARKUP in wait(browser, "document.getElementById('events').innerText")
    assert browser.ask("[document.title, document.querySelectorAll('main script, main b').length]") == [
        "seatrial: cluster seatrial",
        0,
    ]
    assert browser.console == []
    assert all(url.startswith((up.address, "data:")) for url in browser.requests)


def test_a_row_that_goes_leaves_the_focus_where_it_is(browser: Browser, up: Up) -> None:
    opened(browser, up)
    decisions = "document.querySelectorAll('#decisions button')"
    browser.ask(f"{decisions}[1].focus()")
    focus = browser.ask("document.activeElement.textContent")
    browser.ask("tables.decisions.delete(document.querySelector('#decisions .entry').entryKey), drawCluster()")
    assert browser.ask(f"{decisions}[0] === document.activeElement")
    assert browser.ask("document.activeElement.textContent") == focus


def test_the_filter_says_what_is_hidden(browser: Browser, up: Up) -> None:
    opened(browser, up)
    browser.ask("document.getElementById('filter').value = 'h100'")
    browser.ask("document.getElementById('filter').dispatchEvent(new Event('input'))")
    text = wait(
        browser,
        "document.getElementById('fleet').innerText.includes('hidden') && document.getElementById('fleet').innerText",
    )
    assert "2 of 11 nodes, 9 hidden" in text


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Up]:
    with running(tmp_path) as own:
        yield own


def test_a_dead_page_does_not_harm_the_cluster(own: Up) -> None:
    """The address is printed once; the file of it is private, and `list` shows it without the token."""
    file = own.folder / "state/seatrial/clusters/seatrial.web"
    assert own.output.count(own.address) == 1
    assert file.stat().st_mode & 0o777 == 0o600
    (row,) = json.loads(own.seatrial("list", "--json").stdout)
    assert (row["state"], row["livePageFile"]) == ("running", str(file))
    assert own.address.startswith(row["livePage"])
    assert len(own.address) > len(row["livePage"]) + 40
    assert own.address not in own.seatrial("list").stdout
    assert ask(row["livePage"], "GET", "/").code == 403
    assert ask(own.address, "GET", "/").code == 200

    record = json.loads((file.parent / "seatrial.json").read_text())
    pid = record["processes"][[name for name, _ in record["logs"]].index("web")][0]
    os.kill(pid, signal.SIGKILL)
    while json.loads(own.seatrial("list", "--json").stdout)[0]["state"] == "running":
        time.sleep(0.05)
    assert json.loads(own.seatrial("list", "--json").stdout)[0]["state"] == "web ended"
    own.post("/api/v1/pods", pod("later").request(cpu=1).manifest)
    assert own.seatrial("explain", "later", "--kubeconfig", "K").returncode == 0
    assert own.seatrial("down").returncode == 0
    assert not file.exists()
