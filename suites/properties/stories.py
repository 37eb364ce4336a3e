"""A story: changes of a small cluster in virtual time. After each one the scheduler comes to rest, and rules judge it.

A step is plain data, so that a story can be stored as YAML and played again. What a step needs and is not there makes
it a step without effect: a story stays one when steps are left out of it, and Hypothesis can shrink it.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.auditor import Violation
from seatrial.harness.audit.running import audited
from seatrial.harness.clusters.fault_injection.transport import Link, writes
from seatrial.harness.clusters.protocol import ClusterBackend
from seatrial.harness.errors import ApiRefused, UsageError
from seatrial.harness.results import ResultsWriter
from seatrial.harness.subject.protocol import Subject, open_subject
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.storage import SELECTED_NODE
from seatrial.scheduler.api.yaml_files import load_yaml
from seatrial.suites.properties.state import Change, State

Step = dict[str, Any]
Story = list[Step]

LONGEST = 7  # steps of a story after its first ones
ROUND = 10  # stories that Hypothesis draws at once; of more it would make most by changing little of the others
MOST_REPLAYS = 60  # of a story that fails, to make it shorter
AT_REST = 12.0  # seconds after a change: the longest backoff, and the time for a status
BETWEEN, LATE = 0.5, 3.0  # seconds between changes that come together, and until a late answer
TROUBLE, AFTER_TROUBLE = 4.0, 40.0  # seconds that trouble lasts, and after which informers and bindings are tried again
STEPS = 280  # of one area in a run, if nothing else is asked for
_NAMESPACE = "story"


class Rules(Protocol):
    """What an oracle has to say."""

    def __call__(self, before: State, after: State, change: Change) -> Iterator[str]:
        """What the scheduler did wrong from one rest to the next, a sentence each."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where stories are played: the fixture `setting` has one."""

    backend: ClusterBackend
    subject: str
    config: Path | None
    profiles: frozenset[str]
    seed: int
    steps: int
    story: Path | None
    test: str
    folder: Path
    results: ResultsWriter | None


@pytest.fixture
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """The cluster and the scheduler of the session's options, both anew for each story."""
    option = request.config.getoption
    return Setting(
        request.getfixturevalue("seatrial_backend"),
        option("--seatrial-subject"),
        request.getfixturevalue("seatrial_scheduler_config"),
        frozenset(name for mark in request.node.iter_markers("profile") for name in mark.args),
        option("--seatrial-seed"),
        option("--seatrial-steps") or STEPS,
        option("--seatrial-story"),
        f"{request.path.relative_to(request.config.rootpath)}::{request.node.name}",
        tmp_path,
        request.getfixturevalue("seatrial_results"),
    )


class _Stage:
    """One cluster on which one story is played."""

    def __init__(self, trial: Trial, subject: Subject, violations: list[Violation]) -> None:
        self._trial, self._subject, self._violations = trial, subject, violations
        self._places: list[list[tuple[str, str, dict[str, str]]]] = []

    def play(self, story: Story, rules: Rules) -> Iterator[str]:
        before = State.read(self._trial)
        for number, step in enumerate(story, 1):
            self._act(step)
            after, names = self._judged(before, step, rules)
            if names:  # an eviction may have come just now: what is wrong stays so
                self._trial.pass_time(AT_REST)
                after, names = self._judged(before, step, rules)
            self._places.append(after.places())
            if names:
                yield f"step {number}: {'; '.join(names)}"
                return
            before = after
        self._subject.check()

    def _judged(self, before: State, step: Step, rules: Rules) -> tuple[State, list[str]]:
        after = State.read(self._trial)
        return after, [*rules(before, after, _change_of(step)), *map(str, self._violations)]

    def digest(self) -> str:
        """The same for the same nodes and annotations of all pods after each step."""
        return hashlib.sha256(json.dumps(self._places, sort_keys=True).encode()).hexdigest()[:12]

    def _act(self, step: Step) -> None:
        trial = self._trial
        with self._subject.troubled() as link:
            match step.get("during", ""):
                case "":
                    self._change(step)
                case "restart":
                    self._subject.kill()
                    self._change(step)
                    self._subject.start_again()
                case trouble:
                    _begin(trouble, link)
                    self._change(step)
                    trial.pass_time(TROUBLE)
                    link.heal()
                    link.delay = 0.0
                    trial.pass_time(AFTER_TROUBLE)
        trial.pass_time(AT_REST)

    def _change(self, step: Step) -> None:
        trial = self._trial
        match step:
            case {"nodes": entries}:
                for entry in entries:
                    self._add(json.loads(json.dumps(entry)))
            case {"create": [*manifests]}:
                for manifest in manifests:
                    self._create(json.loads(json.dumps(manifest)))
            case {"delete": [kind, name, *namespace]}:
                path = self._path(kind, name, *namespace)
                if trial.call("DELETE", path).ok:
                    trial.wait(lambda: trial.call("GET", path).code == 404, within=AFTER_TROUBLE)
            case {"provision": claim}:
                self._provision(claim, step.get("zone"))
            case {"patch": [path, patch]}:
                trial.call("PATCH", path.replace("{namespace}", trial.name), patch)
            case {"pass": seconds}:
                trial.pass_time(seconds)
            case {"together": steps}:
                for each in steps:
                    self._change(each)
                    trial.pass_time(BETWEEN)

    def _add(self, entry: Step) -> None:
        if entry["name"] not in self._trial.nodes:
            one = node(entry["name"])
            one.manifest = entry
            self._trial.add(one)

    def _path(self, kind: str, name: str, namespace: str = "") -> str:
        own = f"/namespaces/{self._trial.name}/"
        return self._trial.path(kind, name).replace(own, f"/namespaces/{namespace}/" if namespace else own)

    def _create(self, manifest: Step) -> None:
        path, _, _ = self._path(
            manifest["kind"], manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")
        ).rpartition("/")
        try:
            self._trial.create(manifest, path)
        except ApiRefused as error:
            if error.code != 409:  # an object of that name is there
                raise

    def _provision(self, name: str, zone: str | None) -> None:
        """What a provisioner does for a claim with a node: a volume for its node, or for another zone."""
        trial = self._trial
        claim = orjson.loads(trial.call("GET", trial.path("PersistentVolumeClaim", name)).body)
        home = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if not home or claim["spec"].get("volumeName"):
            return
        key, value = ("topology.kubernetes.io/zone", zone) if zone else ("kubernetes.io/hostname", home)
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": trial.name, "name": name}
        spec = {key: claim["spec"][key] for key in ("accessModes", "storageClassName", "volumeMode")} | {
            "capacity": claim["spec"]["resources"]["requests"],
            "claimRef": {**reference, "uid": claim["metadata"]["uid"]},
            "hostPath": {"path": "/made"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
        metadata = {"name": f"made-{claim['metadata']['uid']}", "labels": {"speed": "fast"}}
        trial.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})


def _begin(trouble: str, link: Link) -> None:
    match trouble:
        case "cut":
            link.cut()
        case "held":
            link.hold_streams()
        case "lost":
            link.lose_answers(writes)
        case "refused":
            link.refuse(500, writes)
        case "late":
            link.delay = LATE


def _change_of(step: Step) -> Change:
    """`whole`: the objects count for nothing before the last of them is there, as members of a gang."""
    if "during" in step:
        return Change.UNSEEN
    return Change.ONE if "whole" in step or len(step.get("create", ())) <= 1 else Change.SEVERAL


@contextmanager
def _staged(setting: Setting) -> Iterator[_Stage]:
    with (
        setting.backend.start() as cluster,
        open_subject(
            setting.subject, cluster, seed=setting.seed, config=setting.config, profiles=setting.profiles
        ) as subject,
        audited(cluster) as audit,
    ):
        assert subject is not None
        yield _Stage(Trial(cluster, _NAMESPACE), subject, audit.violations)


def _played(setting: Setting, story: Story, rules: Rules) -> tuple[str, str]:
    """What was wrong first, "" if nothing, and the digest of the placements."""
    with _staged(setting) as stage:
        return next(stage.play(story, rules), ""), stage.digest()


def bare(name: str) -> PodBuilder:
    """A pod without the command that prints what it got: the story stays short."""
    one = pod(name)
    del one.manifest["spec"]["containers"][0]["command"]
    return one


def again(manifest: Step) -> Story:
    """The object goes, and another one of its name comes."""
    return [{"delete": [manifest["kind"], manifest["metadata"]["name"]]}, {"create": [manifest]}]


def _deletions(step: Step) -> Story:
    """The deletion of each object that the step creates."""
    made = [(each["kind"], each["metadata"]) for each in step["create"]]
    return [{"delete": [kind, *(of[key] for key in ("name", "namespace") if key in of)]} for kind, of in made]


@st.composite
def eventful(draw: st.DrawFn, start: st.SearchStrategy[Story], steps: st.SearchStrategy[Step | Story]) -> Story:
    """First steps, then changes; during one of them, or several in a row, the scheduler may be in trouble."""
    listed = draw(st.lists(steps, min_size=1, max_size=LONGEST))
    changes = [step for one in listed for step in (one if isinstance(one, list) else [one])]
    trouble = draw(st.sampled_from(["", "", "restart", "restart", "cut", "lost", "refused", "held", "late", "late"]))
    made = [number for number, step in enumerate(changes) if "create" in step]
    if trouble == "late" and made:  # what was just made may be gone before the scheduler knows that it is placed
        number = draw(st.sampled_from(made))
        changes[number] = {"together": [changes[number], *_deletions(changes[number])], "during": trouble}
    elif trouble:
        number = draw(st.integers(0, len(changes) - 1))
        several = changes[number : number + draw(st.integers(1, 3))]
        one = {"together": several} if len(several) > 1 else several[0]
        changes[number : number + len(several)] = [one | {"during": trouble}]
    return [*draw(start), *changes]


def judge(setting: Setting, stories: st.SearchStrategy[Story], rules: Rules) -> None:
    """Play random stories, or the one of `--seatrial-story`.

    Raises:
        AssertionError: a rule does not hold, with the shortest story for it as YAML and how to play it again.
    """
    if setting.story is not None:
        story = _stored(setting.story)
        wrong, digest = _played(setting, story, rules)
        assert not wrong, _message(setting, story, wrong, digest, setting.story)
        return
    logging.disable()  # the lines of hundreds of stories say nothing
    try:
        for number in range(max(1, setting.steps // (LONGEST * ROUND))):
            _explore(setting, stories, rules, setting.seed + number)
    finally:
        logging.disable(logging.NOTSET)


def _explore(setting: Setting, stories: st.SearchStrategy[Story], rules: Rules, number: int) -> None:
    """Play ROUND stories, which the number determines."""
    failures: dict[str, tuple[str, str]] = {}
    last: Story = []
    replays = 0

    @seeded(number)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(stories)
    def attempt(story: Story) -> None:
        nonlocal last, replays
        key = json.dumps(story, sort_keys=True)
        if key not in failures:
            replays += bool(failures)
            if replays > MOST_REPLAYS:
                return
            wrong, digest = _played(setting, story, rules)
            if not wrong:
                return
            failures[key] = wrong, digest
        last = story
        raise _WrongError(key)

    try:
        attempt()
    except (_WrongError, Flaky):
        wrong, digest = failures[json.dumps(last, sort_keys=True)]
        path = setting.folder / "story.yaml"
        path.write_text(_text(last))
        raise AssertionError(_message(setting, last, wrong, digest, path)) from None


class _WrongError(Exception):
    """A story that fails."""


def _text(story: Story) -> str:
    return yaml.safe_dump(story, sort_keys=False, width=110, default_flow_style=None)


def _stored(path: Path) -> Story:
    try:
        story = load_yaml(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--seatrial-story {path}: expected the YAML of a story: {error}") from error
    if not isinstance(story, list) or not all(isinstance(step, dict) for step in story):
        raise UsageError(f"--seatrial-story {path}: expected a list of steps, as a property that fails prints it")
    return story


def _message(setting: Setting, story: Story, wrong: str, digest: str, path: Path) -> str:
    if setting.results is not None:
        setting.results.attach(setting.test, "story.yaml", _text(story))
    again = f"python -m pytest '{setting.test}' --seatrial-subject {setting.subject} --seatrial-story {path}"
    return f"{wrong}\nplacements {digest}; play it again: {again}\n{_text(story)}"
