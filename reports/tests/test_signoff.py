"""The page says what the files say, stands alone, and lets nothing in a result become markup."""

import re
import shlex
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Case, Evidence, ResultsWriter, RunInfo, Subject, moment
from seatrial.reports.collect import Collection, collect
from seatrial.reports.evidence import MAX_TEXT, show_evidence
from seatrial.reports.sections import repeat_command
from seatrial.reports.signoff import TEMPLATES, headline, signoff, write_signoff
from seatrial.reports.tests.sample import FEATURES_YAML, sample_run
from seatrial.reports.texts import duration_text, own_text
from seatrial.scheduler.api.clock import SIM_EPOCH

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """The page taken apart: ids, links, text; refuses tags that do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name == "src":
                self.loads.append(value or "")
            assert not name.startswith("on"), "no scripts"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    home = tmp_path_factory.mktemp("runs")
    features = home / "features.yaml"
    features.write_text(FEATURES_YAML)
    first = sample_run(home / "a")
    return collect([first, sample_run(home / "b", seed=9, backend="kind", failing=False)], features=features)


def one_run(folder: Path, *cases: Case, finish: bool = True, name: str = "ours") -> Collection:
    with ResultsWriter(folder) as writer:
        writer.run(RunInfo("r1", moment(SIM_EPOCH), ("seatrial",), "embedded", Subject(name, "1")))
        for case in cases:
            writer.case(case)
        if finish:
            writer.finish()
    return collect([folder])


def test_the_page_is_well_formed_and_its_links_lead_somewhere(sample: Collection) -> None:
    page = Page(signoff(sample))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.links) > 40


def test_the_page_stands_alone(sample: Collection) -> None:
    html = signoff(sample)
    page = Page(html)
    assert page.tags.isdisjoint({"script", "link", "iframe", "object", "base"})
    assert all(source.startswith("data:") for source in page.loads)
    assert all(link.startswith("#") for link in page.links)
    assert "url(" not in html
    assert "@import" not in html


def test_every_svg_is_xml(sample: Collection) -> None:
    pictures = re.findall(r"<svg.*?</svg>", signoff(sample), re.DOTALL)
    assert len(pictures) == 5  # latency, two loads, two fleets
    assert all(ET.fromstring(picture).get("aria-label") for picture in pictures)  # noqa: S314  # our own


def test_the_page_says_what_the_files_say(sample: Collection) -> None:
    text = Page(signoff(sample)).text
    for message in (
        "FAIL",
        "2 of 100 cases failed or broke; 90 passed, 8 did not run.",
        "Requirements verified 9 of 13",
        "preemption evicted 3 pods where 2 would do",
        "12:00:31.288 bound default/high-1 n03 gpu 2,5",
        "needs a real GPU",
        "2,000 pods bound in",
        "96 gpu",
        "Xid79: GPU has fallen off the bus",
        "HAMi-core 2.6.0",
        "Signature",
    ):
        assert message in text, message


def test_every_device_of_the_fleet_is_drawn(sample: Collection) -> None:
    html = signoff(sample)
    assert html.count('<g class="cell">') == 2 * 12 * (8 + 2)


def test_the_same_files_give_the_same_page(sample: Collection) -> None:
    assert signoff(sample) == signoff(sample)


def test_nothing_in_a_result_becomes_markup(tmp_path: Path) -> None:
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    with ResultsWriter(tmp_path / "run") as writer:
        writer.attach(evil, evil, evil, ".html")
        writer.measure(evil, "ms", values=range(1, 40), labels={evil: evil})
        writer.event("bound", evil, case=evil)
    case = Case(evil, "failed", evil, evil, evil, (evil,), evil, evil, evil, evidence=(Evidence(evil, evil),))
    page = Page(signoff(one_run(tmp_path / "run", case, Case("b", "skipped", evil, reason=evil), name=evil)))
    assert page.tags.isdisjoint({"script", "img"})


@pytest.mark.parametrize(
    ("case", "finish", "stamp"),
    [
        pytest.param(Case("t::a", "passed"), True, "PASS of what ran", id="all-passed"),
        pytest.param(Case("t::a", "failed"), True, "FAIL", id="one-failed"),
        pytest.param(Case("t::a", "broken"), True, "FAIL", id="one-broken"),
        pytest.param(Case("t::a", "skipped"), True, "INCOMPLETE", id="nothing-ran"),
        pytest.param(Case("t::a", "passed"), False, "INCOMPLETE", id="cut-short"),
    ],
)
def test_the_stamp(tmp_path: Path, case: Case, finish: bool, stamp: str) -> None:
    html = signoff(one_run(tmp_path / "run", case, finish=finish))
    assert f'<p class="stamp">{stamp}</p>' in html
    assert f"<title>{stamp}: ours 1</title>" in html


def test_the_page_puts_failures_first_each_with_its_command(sample: Collection) -> None:
    html = signoff(sample)
    order = [html.index(f'id="h-{name}"') for name in ("findings", "requirements", "performance", "cases", "decision")]
    assert order == sorted(order)
    message = "seatrial run preemption -k test_only_as_many_victims_as_the_pod_needs --backend embedded"
    assert f"Run it again: <code>{message}" in html
    assert "<h4>PRE-1: Preemption by priority, with minimal victims</h4>" in html


@pytest.mark.parametrize(
    ("info", "want"),
    [
        pytest.param(
            RunInfo(
                "r",
                moment(SIM_EPOCH),
                ("seatrial", "run"),
                "local",
                Subject("seatrial"),
                seed=3,
                hardware="stand-in a10:2",
            ),
            "seatrial run gang -k test_a --backend local --subject seatrial --fake a10:2 --seed 3",
            id="stand-in",
        ),
        pytest.param(
            RunInfo(
                "r",
                moment(SIM_EPOCH),
                (
                    "seatrial",
                    "run",
                    "gang",
                    "--workers",
                    "2",
                    "--long",
                    "--scheduler-config",
                    "c.yaml",
                    "--manager=./m --x",
                    "--report",
                    "o",
                ),
                "embedded",
                Subject("./k --port 0"),
                seed=0,
            ),
            "seatrial run gang -k test_a --backend embedded --subject './k --port 0' --scheduler-config c.yaml"
            " '--manager=./m --x' --long --seed 0",
            id="options-of-the-run",
        ),
        pytest.param(
            RunInfo(
                "r",
                moment(SIM_EPOCH),
                ("seatrial", "run", "./own", "--report", "out/x"),
                "embedded",
                Subject("./kube-scheduler --v 2"),
                fleet="lab.yaml",
            ),
            "seatrial run ./own -k test_a --backend embedded --subject './kube-scheduler --v 2' --fleet lab.yaml",
            id="own-suites-and-a-binary",
        ),
        pytest.param(
            RunInfo(
                "r",
                moment(SIM_EPOCH),
                ("seatrial", "run", "gang", "--subject", "/a/suites/recipes/acme.yaml", "--report", "out/x"),
                "embedded",
                Subject("Acme", "1.2.0"),
            ),
            "seatrial run gang -k test_a --backend embedded --subject suites/recipes/acme.yaml",
            id="a-recipe",
        ),
    ],
)
def test_the_command_that_repeats_a_case(info: RunInfo, want: str) -> None:
    assert shlex.join(repeat_command(info, Case("gang/test_x.py::test_a[1]", "failed", suite="gang"))) == want


@pytest.mark.parametrize(
    ("grades", "ribbon"),
    [
        pytest.param((), "SIMULATED: ", id="simulated"),
        pytest.param(("stand-in",), "STAND-IN: ", id="stand-in"),
        pytest.param(("hardware",), "", id="hardware"),
    ],
)
def test_what_did_not_run_on_hardware_is_stamped(tmp_path: Path, grades: tuple[str, ...], ribbon: str) -> None:
    html = signoff(one_run(tmp_path / "run", Case("t::a", "passed", grades=grades)))
    body = html[html.index("<body>") :]
    assert ('<p class="ribbon">' in body) == bool(ribbon)
    assert ribbon in body


def test_rows_show_their_promises_and_the_grades_of_evidence(tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text("[{id: A-1, title: Cards, promises: {one: First, two: {text: Second, needs: [hardware]}}}]")
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("r1", moment(SIM_EPOCH), ("seatrial",), "embedded", Subject("ours", "1")))
        writer.case(Case("t::a", "passed", case="X-1", features=("A-1.one", "A-1.two")))
        writer.finish()
    text = Page(signoff(collect([tmp_path / "run"], features=features))).text
    assert "Cards 2 promises, 1 case" in text
    assert "A-1.two Second needs hardware (needs hardware, passed at simulated, embedded) X-1" in text
    assert "ID Requirement Result Promises Since simulated embedded" in text, "grades without a case have no column"
    assert "not verified 1 of 2" in text
    assert "PASS of what ran 0 of 1 requirements, simulated" in text


def test_a_pass_does_not_hide_what_was_not_verified(tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(FEATURES_YAML)
    result = collect([sample_run(tmp_path / "run", failing=False)], features=features)
    want = "All 46 cases that ran passed; 4 did not run. 2 of 13 requirements are not verified."
    assert headline(result) == want


def test_evidence_outside_of_the_run_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link.txt").symlink_to(tmp_path / "secret.txt")
    for file in ("../secret.txt", str(tmp_path / "secret.txt"), "link.txt"):
        shown = show_evidence(tmp_path / "run", Evidence("x", file))
        assert shown.text == ""
        assert "leads out" in shown.remark


@pytest.mark.parametrize(
    ("file", "content", "remark"),
    [
        pytest.param("a.log", b"short", "", id="short-text-is-whole"),
        pytest.param("a.log", b"x" * (MAX_TEXT + 9), "the first 64 KiB", id="long-text-is-cut"),
        pytest.param("a.bin", b"\x00\x01", "2 bytes, kept beside", id="what-is-no-text-stays-outside"),
        pytest.param("a.log", b"\xff\xfe", "", id="bytes-that-are-no-text-do-no-harm"),
        pytest.param("gone.log", None, "not there", id="a-missing-file"),
    ],
)
def test_evidence(tmp_path: Path, file: str, content: bytes | None, remark: str) -> None:
    if content is not None:
        (tmp_path / file).write_bytes(content)
    shown = show_evidence(tmp_path, Evidence("x", file))
    assert remark in shown.remark
    assert bool(shown.remark) == bool(remark)
    assert len(shown.text) <= MAX_TEXT


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = one_run(tmp_path / "run", Case("t::a", "passed"))
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"page\.html: cannot be written"):
        write_signoff(result, tmp_path / "file" / "page.html")


@pytest.mark.parametrize(
    ("seconds", "want"), [(0.4123, "0.412 s"), (12.34, "12.3 s"), (245, "4 min 05 s"), (7980, "2 h 13 min")]
)
def test_durations_are_for_people(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, as WCAG 2.2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def schemes() -> dict[str, dict[str, str]]:
    """The colours of each scheme by name, out of the style sheet."""
    css = own_text(TEMPLATES / "colors.css", TEMPLATES / "signoff.css")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    pairs = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block)) for block in blocks]
    whole = [
        {name: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:]) for name, c in pod.items()} for pod in pairs
    ]
    return dict(zip(("light", "dark", "print"), whole, strict=True))


READ_ON = [
    *((ink, paper) for ink in ("ink", "muted", "link") for paper in ("paper", "soft")),
    *((state, f"{state}-back") for state in ("good", "bad", "warn", "none")),
    *(("on-light", step) for step in ("o1", "o2")),
    *(("on-dark", step) for step in ("o4", "o5")),
    ("muted", "o0"),
]


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
@pytest.mark.parametrize(("ink", "paper"), READ_ON)
def test_text_has_contrast_enough(scheme: str, ink: str, paper: str) -> None:
    colours = schemes()[scheme]
    first, second = luminance(colours[ink]), luminance(colours[paper])
    assert (max(first, second) + 0.05) / (min(first, second) + 0.05) >= 4.5


def test_a_row_that_is_not_built_is_told_apart_from_one_without_evidence(tmp_path: Path) -> None:
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("r1", moment(0), ("seatrial",), "virtual", Subject("ours")))
        writer.case(Case("suites/test_a.py::test_a", "passed", case="EX-001", features=("A-1.one",)))
        writer.finish()
    listed = tmp_path / "features.yaml"
    listed.write_text(
        "- {id: A-1, title: a, promises: {one: x}}\n- {id: B-1, title: b, promises: {two: y}, built: false}\n"
        "- {id: C-1, title: c, promises: {three: z}}\n"
    )
    collection = collect([tmp_path / "run"], features=listed)
    assert [promise.why for promise in collection.promises] == ["", "not built", "no case"]
    assert headline(collection).endswith("2 of 3 requirements are not verified, 1 of them because they are not built.")
    assert signoff(collection).count('<span class="remark">not built</span>') == 1


def test_failures_of_one_cause_are_one_finding(tmp_path: Path) -> None:
    """Two parameters of one test and another test: the two are one finding, in words, each with its own command."""
    result = one_run(
        tmp_path / "run",
        Case(
            "a/test_a.py::test_a[1]", "failed", "a (1)", case="A-1[1]", reason="expected f(x) == [], found ['n1'] == []"
        ),
        Case(
            "a/test_a.py::test_a[2]", "failed", "a (2)", case="A-1[2]", reason="expected f(x) == [], found ['n2'] == []"
        ),
        Case("a/test_a.py::test_b", "failed", "b", case="A-2", reason="expected f(x) == [], found ['n2'] == []"),
    )
    html = signoff(result)
    findings = html[html.index('id="h-findings"') : html.index('id="h-requirements"')]
    assert '<span class="claim">f(x): expected none; found n1</span><span class="code">2 cases</span>' in findings
    assert findings.count('<details class="finding failed" open>') == 1
    assert findings.count('<details class="finding failed" id=') == 3
    assert findings.count("Run it again:") == 3
    assert findings.count('<p class="why">f(x): expected none; found n2</p>') == 2
    assert findings.count("&#39;n2&#39;] == []</pre>") == 2, "what was recorded is kept"
    Page(html)
