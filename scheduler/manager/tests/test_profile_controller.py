"""The profile controller against a small API: which pods it changes, when again, and how fast."""

from random import Random
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.colocation import ClusterColocationProfile
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.manager.profile_controller import BURST, FORCE_AFTER, INTERVAL, ProfileController, _decode_pod

MANAGED = {"config.koordinator.sh/controller-managed": "true"}


class Api:
    """Records patches, and answers them with `code`; pods and profiles are put in by hand."""

    def __init__(self, *, by_default: bool = False, seed: int = 0) -> None:
        self.clock, self.code = SimClock(), 200
        self.steps: list[list[dict[str, Any]]] = []
        self.controller = ProfileController(self, self.clock, Random(seed), by_default=by_default)  # type: ignore[arg-type]  # noqa: S311

    def send(self, request: Request, done: Done) -> None:
        self.steps.append(orjson.loads(request.body))
        done(Response(self.code, b"{}"))

    def stream(self, *_: object) -> object:
        raise AssertionError("no watch in this test")

    def pod(self, name: str = "p", *, phase: str = "Pending", labels: dict[str, str] | None = None) -> None:
        body = {
            "metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": "7", "labels": labels or {}},
            "status": {"phase": phase},
        }
        self.controller._set_pod(_decode_pod(orjson.dumps(body)))

    def profile(self, name: str = "a", version: str = "1", managed: bool = True, **spec: Any) -> None:
        metadata = {"name": name, "resourceVersion": version, "labels": MANAGED if managed else {}}
        body = {"metadata": metadata, "spec": {"selector": {}, **spec}}
        self.controller._profiles[name] = msgspec.convert(body, ClusterColocationProfile)

    def round(self, seconds: float = 0.0) -> list[Any]:
        """The values that are written by a round after so much time."""
        if self.controller._next is not None:
            self.controller._next.cancel()
        self.clock.advance(seconds)
        self.steps.clear()
        self.controller._round()
        return [step["value"] for steps in self.steps for step in steps]


@pytest.fixture
def api() -> Api:
    return Api()


def test_one_write_has_what_all_profiles_of_a_pod_say(api: Api) -> None:
    """The later name decides, the write demands the version that was compared, and it is not repeated."""
    api.pod()
    api.profile("b", labels={"who": "b"}, koordinatorPriority=7)
    api.profile("a", labels={"who": "a", "only": "a"}, qosClass="BE")
    labels = {"who": "b", "only": "a", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "7"}
    assert api.round() == ["7", labels]
    assert api.steps[0][0]["op"] == "test"
    assert api.round(INTERVAL) == []
    assert api.round(FORCE_AFTER) != [], "the pod has not changed: it is compared again"


def test_what_a_pod_has_is_not_written_again(api: Api) -> None:
    """Also not a suffix, on a label that the profile sets and on one that it does not."""
    api.pod(labels={"who": "a-x", "other": "o-y"})
    api.profile(labels={"who": "a"}, labelSuffixes={"who": "-x", "other": "-y"})
    assert api.round() == []


@pytest.mark.parametrize(
    ("pod", "profile"),
    [
        pytest.param({"phase": "Running"}, {}, id="runs"),
        pytest.param({}, {"managed": False}, id="not-managed"),
        pytest.param({}, {"selector": None}, id="no-selector"),
        pytest.param({}, {"selector": {"matchLabels": {"a": "b"}}}, id="other-pods"),
        pytest.param({}, {"namespaceSelector": {}}, id="namespace-not-known"),
        pytest.param({}, {"probability": 0}, id="never"),
        pytest.param({}, {"probability": "half"}, id="no-probability"),
    ],
)
def test_pods_that_stay_as_they_are(api: Api, pod: dict[str, Any], profile: dict[str, Any]) -> None:
    api.pod(**pod)
    api.profile(**{"labels": {"a": "b"}, **profile})
    assert api.round() == []


def test_by_default_profiles_need_no_label() -> None:
    api = Api(by_default=True)
    api.pod()
    api.profile(managed=False, labels={"a": "b"})
    assert api.round() == ["7", {"a": "b"}]


def test_a_probability_that_is_none_costs_its_profile_alone(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.pod()
    api.profile("a", labels={"a": "a"}, probability="150%")
    api.profile("b", labels={"b": "b"})
    assert api.round() == ["7", {"b": "b"}]
    api.round(INTERVAL)
    (text,) = caplog.messages
    assert "profile left out why=ClusterColocationProfile a: probability: expected 0 to 100" in text
    assert "150%" in text


def test_a_refused_write_is_tried_again_and_logged_once(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.pod()
    api.profile(labels={"a": "b"})
    api.code = 422
    assert [len(api.round(INTERVAL)) for _ in range(3)] == [2, 2, 2]
    assert len(caplog.messages) == 1
    assert "pod=d/p" in caplog.messages[0]
    api.code = 200
    assert len(api.round(INTERVAL)) == 2
    assert api.round(INTERVAL) == []


def test_dice_are_thrown_once_for_each_pod_and_version(api: Api) -> None:
    """With one in two, about half of 100 pods get it, and no more in later rounds; another version throws again."""
    for number in range(100):
        api.pod(f"p{number}")
    api.profile(labels={"a": "b"}, probability=50)
    first = len(api.round()) // 2
    assert 35 < first < 65
    assert api.round(INTERVAL) == []
    assert len(api.round(FORCE_AFTER)) // 2 == first
    api.profile(version="2", labels={"a": "b"}, probability=50)
    assert 35 < len(api.round(FORCE_AFTER)) // 2 < 65


def test_a_burst_and_then_ten_a_second(api: Api) -> None:
    """Of 450 pods 100 at once; 5 seconds later 50 more, and never more than 100 together."""
    for number in range(450):
        api.pod(f"p{number}")
    api.profile(labels={"a": "b"})
    assert len(api.round()) // 2 == BURST
    assert len(api.round(5)) // 2 == 50
    assert len(api.round(INTERVAL)) // 2 == BURST, "what is not used in time is lost"
