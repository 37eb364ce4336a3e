"""Arguments of ElasticQuota that other cases leave at their defaults. All profiles share quotas: a scheduler each."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.scheduler.api.builders import node, pod, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import DEFAULT_QUOTA, GUARANTEED, PARENT, ROOT_QUOTA, RUNTIME, SYSTEM_QUOTA
from seatrial.suites.faults.schedulers import with_arguments
from seatrial.suites.quota.quotas import annotation, counted, make, many, named, path_of, placed, read, settle

pytestmark = [pytest.mark.needs(Capability.VIRTUAL_TIME)]  # a scheduler of its own


def scheduling(backend: ClusterBackend, subject: str, folder: Path, **args: object) -> AbstractContextManager[Trial]:
    """A cluster of its own, and a scheduler with these arguments of ElasticQuota."""
    return with_arguments(backend, subject, folder, "ElasticQuota", args, profile=KOORD_SCHEDULER)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-400", severity="normal", source="spec QUOTA-R41")
@pytest.mark.parametrize(("shares", "expected"), [(True, 2), (False, 6)], ids=["shares", "max-alone"])
def test_without_runtime_shares_max_alone_counts(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, shares: bool, expected: int
) -> None:
    """A sibling with three times the weight asks for all eight cores, but fits nowhere. A quota with a max of six gets
    its share of two; without runtime shares it gets six."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, enableRuntimeQuota=shares) as trial:
        trial.add(node("n1").cpu(8))
        a, b = (quota(named(trial, name)).max(cpu=most) for name, most in (("a", 6), ("b", 8)))
        make(trial, a.weight(cpu=1), b.weight(cpu=3))
        trial.submit(*(one.select({"no": "node"}) for one in many(trial, "b", 8)))
        settle(trial)

        trial.submit(*many(trial, "a", 8))

        settle(trial)
        assert placed(trial, "a-") == expected
        Expect(trial).pending("a-7", saying="Insufficient quotas")


@pytest.mark.feature("QUOTA-5.default-and-system")
@pytest.mark.case("QU-401", severity="normal", source="spec QUOTA-R39, QUOTA-R40")
def test_the_max_of_the_default_quota(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Without runtime shares, pods of no quota have what the arguments give the default quota, and more or less once
    its object says so."""
    subject = pytestconfig.getoption("--seatrial-subject")
    most = {"cpu": "2", "memory": "100Gi"}
    with scheduling(seatrial_backend, subject, tmp_path, enableRuntimeQuota=False, defaultQuotaGroupMax=most) as trial:
        expect = Expect(trial)
        trial.add(node("n1").cpu(32))
        make(trial, quota(named(trial, "a")).max(cpu=8))
        settle(trial)
        path = path_of(trial, DEFAULT_QUOTA, "koordinator-system")
        trial.submit(*(pod(f"free-{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(6)))
        settle(trial)
        assert placed(trial, "free-") == 2

        for cores, count in ((4, 4), (3, 4), (5, 5)):
            assert trial.call("PATCH", path, {"spec": {"max": {"cpu": str(cores)}}}).ok
            settle(trial)
            assert placed(trial, "free-") == count, f"max: {cores} cores"

        trial.submit(*(counted(trial, f"a-{number}", "a", cpu=2) for number in range(4)))
        expect.bound(*(f"a-{number}" for number in range(4)))


@pytest.mark.feature("QUOTA-5.default-and-system")
@pytest.mark.case("QT-312", severity="normal", source="spec QUOTA-R37, elastic-quota 1.3; ElasticQuotaArgs")
def test_where_the_special_quotas_are(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """The arguments name the namespace of the special quotas, and the max of the system quota."""
    subject = pytestconfig.getoption("--seatrial-subject")
    args = {"quotaGroupNamespace": "quotas", "systemQuotaGroupMax": {"cpu": "3", "memory": "5Gi"}}
    with scheduling(seatrial_backend, subject, tmp_path, **args) as trial:
        trial.add(node("n1").cpu(8))
        make(trial, quota(named(trial, "a")).max(cpu=8))
        settle(trial)

        paths = {name: path_of(trial, name, "quotas") for name in (ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA)}
        assert [name for name, path in paths.items() if not trial.call("GET", path).ok] == []
        assert read(trial, SYSTEM_QUOTA, "quotas")["spec"]["max"] == args["systemQuotaGroupMax"]
        assert trial.call("GET", path_of(trial, SYSTEM_QUOTA, "koordinator-system")).code == 404


@pytest.mark.feature("QUOTA-4.scaled-min")
@pytest.mark.case("QU-402", severity="normal", source="spec QUOTA-R19, QUOTA-R20")
@pytest.mark.parametrize(("scaled", "expected"), [(True, 2), (False, 3)], ids=["scaled", "whole"])
def test_whether_mins_shrink_with_the_cluster(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, scaled: bool, expected: int
) -> None:
    """Two quotas have a min of four each on four cores, and both ask for more: each may have two, or its whole min
    where mins are not scaled. The pods of one of them fit nowhere, and the other one has three."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, enableMinQuotaScale=scaled) as trial:
        trial.add(node("n1").cpu(4))
        make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
        trial.submit(*(one.select({"no": "node"}) for one in many(trial, "b", 8)))
        settle(trial)

        trial.submit(*many(trial, "a", 3))

        settle(trial)
        assert placed(trial, "a-") == expected


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-403", severity="normal", source="spec QUOTA-R49")
@pytest.mark.parametrize("spared", [True, False], ids=["spared", "victims"])
def test_whether_pods_of_the_default_quota_are_victims(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, spared: bool
) -> None:
    """The default quota is full. A more important pod of it waits, or evicts one if the arguments allow that."""
    subject = pytestconfig.getoption("--seatrial-subject")
    most = {"cpu": "2", "memory": "100Gi"}
    arguments = {"enableRuntimeQuota": False, "defaultQuotaGroupMax": most, "disableDefaultQuotaPreemption": spared}
    with scheduling(seatrial_backend, subject, tmp_path, **arguments) as trial:
        expect = Expect(trial)
        trial.add(node("n1").cpu(8))
        trial.apply(priority_class("trial-high", 9000))
        make(trial, quota(named(trial, "a")).max(cpu=8))
        settle(trial)
        trial.submit(*(pod(f"free-{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(2)))
        expect.bound("free-0", "free-1")

        trial.submit(pod("high").request(cpu=1).scheduler(KOORD_SCHEDULER).priority_class("trial-high"))

        settle(trial)
        assert placed(trial, "high") == (not spared)
        assert placed(trial, "free-") == 1 + spared


@pytest.mark.feature("QUOTA-5.default-and-system")
@pytest.mark.case("QU-404", severity="normal", source="spec QUOTA-R30")
@pytest.mark.parametrize("off", [True, False], ids=["without-default", "with-default"])
def test_pods_that_name_no_quota_without_a_default_one(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, off: bool
) -> None:
    """A quota for a namespace counts its pods. Without the default quota only the label of a pod names its quota."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, disableDefaultQuota=off) as trial:
        expect = Expect(trial)
        trial.add(node("n1").cpu(8))
        make(trial, quota(named(trial, "a")).max(cpu=2).namespaces(trial.name))
        settle(trial)

        trial.submit(*(pod(f"free-{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(3)))

        settle(trial)
        assert placed(trial, "free-") == (3 if off else 2)
        trial.submit(*many(trial, "a", 3))
        settle(trial)
        assert placed(trial, "a-") == (2 if off else 0)
        expect.pending("a-2", saying="Insufficient quotas")


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-405", severity="normal", source="spec QUOTA-R34")
@pytest.mark.parametrize("ignored", [True, False], ids=["ignored", "counted"])
def test_whether_a_terminating_pod_counts_at_once(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, ignored: bool
) -> None:
    """A quota is full. One of its pods is deleted and stays, by a finalizer: the next pod of the quota is bound at once
    if terminating pods are ignored, else when the pod is gone."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, ignoreTerminatingPod=ignored) as trial:
        expect = Expect(trial)
        trial.add(node("n1").cpu(8))
        make(trial, quota(named(trial, "a")).max(cpu=2))
        old = counted(trial, "old", "a", cpu=2)
        old.manifest["metadata"]["finalizers"] = ["example.com/wait"]
        trial.submit(old)
        expect.running("old")
        trial.submit(*many(trial, "a", 1))
        expect.pending("a-0", saying="Insufficient quotas")

        assert trial.call("DELETE", trial.path("Pod", "old")).ok

        settle(trial)
        assert placed(trial, "a-") == ignored
        assert trial.call("PATCH", trial.path("Pod", "old"), {"metadata": {"finalizers": None}}).ok
        expect.bound("a-0")


@pytest.mark.feature("QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-412", severity="normal", source="spec QUOTA-R25, QUOTA-R26")
@pytest.mark.parametrize(("guaranteed", "share"), [(True, 7), (False, 4)], ids=["used", "min-alone"])
def test_whether_what_is_used_is_guaranteed(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, guaranteed: bool, share: int
) -> None:
    """A quota uses six of eight cores, and it and an equal one ask for all: it keeps six and gets one of the others if
    use is guaranteed, also below another parent. A larger min that it gets later is guaranteed as well."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, guaranteeUsage=guaranteed) as trial:
        trial.add(node("n1").cpu(8))
        above = [named(trial, name) for name in ("first", "second")]
        make(trial, *(quota(name).max(cpu=8).parent() for name in above))
        make(trial, *(quota(named(trial, name)).max(cpu=8).below(above[0]) for name in "ab"))
        trial.submit(*many(trial, "a", 6))
        Expect(trial).bound("a-0", "a-5")
        trial.submit(*(one.select({"no": "node"}) for one in (*many(trial, "b", 8), *many(trial, "a", 8)[6:])))
        settle(trial)
        path = path_of(trial, named(trial, "a"))

        def cores(key: str, name: str = named(trial, "a")) -> int:
            return int(annotation(read(trial, name), key).get("cpu", "0"))

        assert cores(RUNTIME) == share

        assert trial.call("PATCH", path, {"metadata": {"labels": {PARENT: above[1]}}}).ok
        settle(trial)
        assert cores(RUNTIME) == share
        if guaranteed:
            assert [cores(GUARANTEED, name) for name in above] == [0, 6]

            assert trial.call("PATCH", path, {"spec": {"min": {"cpu": "8"}}}).ok
            settle(trial)
            assert [cores(GUARANTEED, name) for name in above] == [0, 8]
            assert cores(RUNTIME) == 8


@pytest.mark.feature("QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-416", severity="normal", source="spec QUOTA-R25, QUOTA-R26")
def test_at_least_its_min_is_guaranteed(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Where use is guaranteed: a quota that uses less than its min is guaranteed its min, and so is the one above it;
    both are guaranteed what is used when that is more."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, guaranteeUsage=True) as trial:
        trial.add(node("n1").cpu(8))
        names = [named(trial, name) for name in ("above", "a")]
        make(trial, quota(names[0]).max(cpu=8).parent(), quota(names[1]).min(cpu=4).max(cpu=8).below(names[0]))
        pods = many(trial, "a", 6)
        for count, guaranteed in ((1, 4), (6, 6)):
            trial.submit(*(each for each in pods[:count] if trial.find(each.name) is None))
            Expect(trial).bound(*(each.name for each in pods[:count]))
            settle(trial)
            cores = [int(annotation(read(trial, name), GUARANTEED).get("cpu", "0")) for name in names]
            assert cores == [guaranteed] * 2


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-413", severity="normal", source="spec QUOTA-R67, QUOTA-R68; defaults of ElasticQuotaArgs")
@pytest.mark.parametrize("watched", [True, False], ids=["all-quotas", "none"])
def test_overuse_is_taken_back_after_two_minutes(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path, watched: bool
) -> None:
    """The max of a quota becomes half of what it uses: with monitorAllQuotas its pods are evicted after 120 s, and not
    before; without, none is."""
    subject = pytestconfig.getoption("--seatrial-subject")
    with scheduling(seatrial_backend, subject, tmp_path, monitorAllQuotas=watched) as trial:
        trial.add(node("n1").cpu(8))
        make(trial, quota(named(trial, "a")).max(cpu=4))
        trial.submit(*many(trial, "a", 4))
        Expect(trial).running("a-0", "a-3")
        assert trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "2"}}}).ok
        trial.pass_time(110)
        assert placed(trial, "a-") == 4
        trial.pass_time(60)
        assert placed(trial, "a-") == (2 if watched else 4)


@pytest.mark.feature("QUOTA-12.overuse", "QUOTA-5.default-and-system")
@pytest.mark.case("QT-320", severity="normal", source="spec QUOTA-R40, QUOTA-R67: every quota except root and system")
def test_overuse_of_the_default_quota_is_taken_back(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Pods of no quota are admitted beyond the max of the default quota. After 120 s as many are evicted, and of the
    system quota, which is as small, none."""
    subject = pytestconfig.getoption("--seatrial-subject")
    most = {"cpu": "2", "memory": "100Gi"}
    args = {"monitorAllQuotas": True, "defaultQuotaGroupMax": most, "systemQuotaGroupMax": most}
    with scheduling(seatrial_backend, subject, tmp_path, **args) as trial:
        trial.add(node("n1").cpu(16))
        make(trial, quota(named(trial, "a")).max(cpu=4))
        settle(trial)
        for number in range(3):
            free, of_system = (pod(f"{kind}-{number}").request(cpu=1) for kind in ("free", "system"))
            trial.submit(free.scheduler(KOORD_SCHEDULER), of_system.quota(SYSTEM_QUOTA).scheduler(KOORD_SCHEDULER))
        Expect(trial).running(*(f"{kind}-{number}" for kind in ("free", "system") for number in range(3)))
        trial.pass_time(170)
        assert (placed(trial, "free-"), placed(trial, "system-")) == (2, 3)
