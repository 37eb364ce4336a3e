"""Admission of quotas: the API server refuses what breaks the rules, in the words of Koordinator's webhook."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import CONFIGURATIONS
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import QuotaBuilder, pod, quota
from seatrial.scheduler.api.quota import (
    ADMISSION,
    ALLOW_FORCE_UPDATE,
    IS_PARENT,
    PARENT,
    PREEMPTIBLE,
    SHARED_WEIGHT,
    TREE_ID,
)
from seatrial.suites.quota.webhook import path_of, quota_webhook

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

QUOTA_PROFILES = "/apis/quota.koordinator.sh/v1alpha1"
BY_DEFAULT = "seatrial-quota-webhook"
DENIED = 'admission webhook "vquota.koordinator.sh" denied the request: '
DENIED_BEFORE = 'admission webhook "mquota.koordinator.sh" denied the request: '


@pytest.fixture(autouse=True)
def webhook(request: pytest.FixtureRequest, trial: Trial) -> Iterator[None]:
    """The webhook as a process that follows the cluster's quotas and pods. The embedded cluster has it."""
    if request.config.getoption("--seatrial-manager"):
        yield  # Koordinator's manager runs
        return
    if trial.call("GET", f"{CONFIGURATIONS}/validatingwebhookconfigurations/{BY_DEFAULT}").ok:
        yield
        return
    with quota_webhook(trial, "--multi-quota-tree"):
        yield


def refused(trial: Trial, builder: QuotaBuilder) -> str:
    with pytest.raises(ApiRefused) as error:
        trial.apply(builder.manifest)
    return str(error.value)


def family(trial: Trial) -> str:
    """A parent with a min of 10 and a child with a min of 4; the common part of their names."""
    own = trial.name
    trial.apply(quota(f"{own}-p").min(cpu=10).max(cpu=20).parent().manifest)
    trial.apply(quota(f"{own}-a").min(cpu=4).max(cpu=20).below(f"{own}-p").manifest)
    return own


@pytest.mark.feature("QUOTA-2.min-of-children")
@pytest.mark.case("QU-050", severity="critical")
def test_children_have_no_more_min_than_their_parent(trial: Trial) -> None:
    """A second child whose min does not fit is refused, and a smaller one is accepted, and one that does not fit with
    the label allow-force-update."""
    own = family(trial)

    message = refused(trial, quota(f"{own}-b").min(cpu=7).max(cpu=20).below(f"{own}-p"))

    assert f"{DENIED}checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {own}-p" in message
    trial.apply(quota(f"{own}-b").min(cpu=6).max(cpu=20).below(f"{own}-p").manifest)
    trial.apply(quota(f"{own}-c").min(cpu=7).max(cpu=20).below(f"{own}-p").label(ALLOW_FORCE_UPDATE, "true").manifest)


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-051", severity="normal")
def test_min_is_at_most_max(trial: Trial) -> None:
    """A quota whose min is above its max is refused with both values."""
    message = refused(trial, quota(f"{trial.name}-x").min(cpu=3).max(cpu=2))
    assert f"{DENIED}resourceKey cpu of quota {trial.name}-x min 3 > max 2" in message


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-052", severity="critical")
def test_a_parent_stays_while_it_has_children(trial: Trial) -> None:
    """Deleting a parent with a child is refused, and then the child and the parent can be deleted."""
    own = family(trial)

    response = trial.call("DELETE", path_of(trial, f"{own}-p"))

    assert response.code == 400
    assert f"{DENIED}delete quota failed, quota {own}-p has 1 child quotas" == yaml.safe_load(response.body)["message"]
    assert trial.call("DELETE", path_of(trial, f"{own}-a")).ok
    assert trial.reaches(lambda: trial.call("DELETE", path_of(trial, f"{own}-p")).ok, within=10)


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-053", severity="normal")
def test_a_parent_has_no_pods(trial: Trial) -> None:
    """A pod that names a parent quota is refused, and one of its child is accepted."""
    own = family(trial)

    with pytest.raises(ApiRefused) as error:
        trial.submit(pod("one").quota(f"{own}-p"))

    assert f"pod can not be linked to a parentQuotaGroup,quota:{own}-p, pod:one" in str(error.value)
    trial.submit(pod("one").quota(f"{own}-a"))


@pytest.mark.feature("QUOTA-2.defaults")
@pytest.mark.case("QU-054", severity="normal")
def test_a_new_quota_gets_its_defaults(trial: Trial) -> None:
    """Parent and shared weight are stored where the author gave none. A weight is for the resources of max: of one that
    it lacks it is max, and others are dropped."""
    builder = quota(f"{trial.name}-y").max(cpu=2, memory="4Gi").weight(cpu=5, pods=3)
    trial.apply(quota(f"{trial.name}-x").max(cpu=2).manifest, builder.manifest)
    for name, weight in (("x", {"cpu": "2"}), ("y", {"cpu": "5", "memory": "4Gi"})):
        metadata = yaml.safe_load(trial.call("GET", path_of(trial, f"{trial.name}-{name}")).body)["metadata"]
        assert metadata["labels"][PARENT] == "koordinator-root-quota"
        assert {
            key: str(value) for key, value in yaml.safe_load(metadata["annotations"][SHARED_WEIGHT]).items()
        } == weight


def below(own: str) -> QuotaBuilder:
    return quota(f"{own}-b").min(cpu=1).max(cpu=20).below(f"{own}-p")


def of_two_namespaces(own: str) -> QuotaBuilder:
    return quota(f"{own}-b").max(cpu=1).namespaces("elsewhere", own)


KEYS = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "
REFUSED: dict[str, tuple[Callable[[str], QuotaBuilder], str]] = {
    "the-name-is-taken": (lambda own: quota(f"{own}-a").max(cpu=1), "AddQuota quota already exist:{own}-a"),
    "the-namespace-is-taken": (
        of_two_namespaces,
        "AddQuota quota {own}-b's annotation namespace {own} is already bound to quota {own}-n",
    ),
    "max-below-0": (
        lambda own: quota(f"{own}-b").max(cpu=-1),
        "{own}-b quota.Spec.Max's value < 0, in dimensions :[cpu]",
    ),
    "min-below-0": (
        lambda own: quota(f"{own}-b").min(cpu=-1).max(cpu=1),
        "{own}-b quota.Spec.Min's value < 0, in dimensions :[cpu]",
    ),
    "min-without-max": (
        lambda own: quota(f"{own}-b").min(memory=1).max(cpu=1),
        "resourceKey memory of quota {own}-b is included in min, which is not included in max",
    ),
    "weight-below-0": (
        lambda own: quota(f"{own}-b").max(cpu=1).weight(cpu=-1),
        "{own}-b quota.Annotation[quota.scheduling.koordinator.sh/shared-weight]'s value < 0, in dimension :[cpu]",
    ),
    "the-weight-is-no-list": (
        lambda own: quota(f"{own}-b").max(cpu=1).annotation(SHARED_WEIGHT, "[1]"),
        "fillDefaultQuotaInfo unmarshal sharedWeight failed:",
    ),
    "an-orphan": (
        lambda own: quota(f"{own}-b").max(cpu=1).below("nobody"),
        "fill quota {own}-b failed, parent not exist",
    ),
    "below-itself": (
        lambda own: quota(f"{own}-b").max(cpu=1).below(f"{own}-b"),
        "fill quota {own}-b failed, parent not exist",
    ),
    "the-parent-is-none": (
        lambda own: quota(f"{own}-b").max(cpu=20).below(f"{own}-a"),
        "{own}-b has parentName {own}-a but the parentQuotaInfo's IsParent is false",
    ),
    "another-tree": (
        lambda own: below(own).label("quota.scheduling.koordinator.sh/tree-id", "t"),
        "{own}-b tree id is different from parent {own}-p, [t] vs []",
    ),
    "other-resources-than-the-parent": (
        lambda own: below(own).max(memory=1),
        KEYS + "{own}-p's max keys are not the same with {own}-b's",
    ),
    "sixty-digits-of-min": (
        lambda own: quota(f"{own}-b").min(cpu="1" + "0" * 59 + "Ki").max(cpu=2),
        "resourceKey cpu of quota {own}-b min 9223372036854775807 > max 2",  # `ParseQuantity` cuts binary suffixes
    ),
}


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-055", severity="critical")
@pytest.mark.parametrize("what", list(REFUSED))
def test_contradictions_are_refused_word_for_word(trial: Trial, what: str) -> None:
    """A new quota that contradicts itself or its tree is refused in Koordinator's words, and a right one is stored."""
    own = family(trial)
    trial.apply(quota(f"{own}-n").max(cpu=1).namespaces(own).manifest)
    target, message = REFUSED[what]

    assert f"{DENIED if 'fill' not in message else DENIED_BEFORE}{message.format(own=own)}" in refused(
        trial, target(own)
    )

    trial.apply(below(own).manifest)


CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a-parent-with-children-stays-one": (
        "p",
        {"metadata": {"labels": {IS_PARENT: "false"}}},
        "quota has children, isParent is forbidden to modify as false, quotaName:{own}-p",
    ),
    "a-quota-with-pods-becomes-no-parent": (
        "a",
        {"metadata": {"labels": {IS_PARENT: "true"}}},
        "quota has bound pods, isParent is forbidden to modify as true, quotaName: {own}-a",
    ),
    "the-tree-is-fixed": ("p", {"metadata": {"labels": {TREE_ID: "t"}}}, "{own}-p tree id changed [] vs [t]"),
    "a-cycle": (
        "p",
        {"metadata": {"labels": {PARENT: "{own}-c"}}},
        "{own}-p has parentName {own}-c which is the quota itself or below it",
    ),
    "a-parent-below-its-children": (
        "p",
        {"spec": {"min": {"cpu": "5"}}},
        "checkMinQuotaSum all children's MinQuota > current MinQuota, current: {own}-p",
    ),
    "a-child-above-its-parent": (
        "a",
        {"spec": {"min": {"cpu": "9"}}},
        "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {own}-p",
    ),
    "a-quota-with-pods-of-its-namespace-becomes-no-parent": (
        "n",
        {"metadata": {"labels": {IS_PARENT: "true"}}},
        "quota has bound pods, isParent is forbidden to modify as true, quotaName: {own}-n",
    ),
    "the-weight-alone": (
        "a",
        {"metadata": {"annotations": {SHARED_WEIGHT: '{"cpu": -1}'}}},
        "{own}-a quota.Annotation[quota.scheduling.koordinator.sh/shared-weight]'s value < 0, in dimension :[cpu]",
    ),
}


@pytest.mark.feature("QUOTA-2.refusals", "QUOTA-2.min-of-children")
@pytest.mark.case("QU-056", severity="critical")
@pytest.mark.parametrize("what", list(CHANGES))
def test_changes_are_refused_word_for_word(trial: Trial, what: str) -> None:
    """A change that contradicts the tree is refused in Koordinator's words, and the quota stays as it is; a larger min
    that its siblings leave is taken."""
    own = family(trial)
    trial.apply(quota(f"{own}-n").max(cpu=1).namespaces(own).manifest)
    trial.apply(quota(f"{own}-c").min(cpu=2).max(cpu=20).below(f"{own}-p").parent().manifest)
    trial.submit(pod("one").quota(f"{own}-a"), pod("two"))
    name, change, message = CHANGES[what]
    before = yaml.safe_load(trial.call("GET", path_of(trial, f"{own}-{name}")).body)
    change = yaml.safe_load(yaml.safe_dump(change).replace("{own}", own))

    # The webhook receives pods from a watch.
    def refusal() -> str:
        return str(yaml.safe_load(trial.call("PATCH", path_of(trial, f"{own}-{name}"), change).body).get("message"))

    assert trial.reaches(lambda: refusal() == f"{DENIED}{message.format(own=own)}", within=5), refusal()

    after = yaml.safe_load(trial.call("GET", path_of(trial, f"{own}-{name}")).body)
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert trial.call("PATCH", path_of(trial, f"{own}-a"), {"spec": {"min": {"cpu": "8"}}}).ok


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case(
    "QU-099", severity="normal", source="Koordinator pkg/webhook/elasticquota/quota_topology_check.go; spec V15"
)
@pytest.mark.parametrize("which", ["x", "y"])
def test_a_parent_keeps_the_resources_of_its_children(trial: Trial, which: str) -> None:
    """One of two children has a min of memory: its parent's min keeps memory. Neither does the parent's max get a
    resource that its children's lack."""
    own = trial.name
    trial.apply(quota(f"{own}-p").min(cpu=10, memory=10).max(cpu=20, memory=20).parent().manifest)
    for name in ("x", "y"):
        least = {"cpu": 1, "memory": 1} if name == which else {"cpu": 1}
        trial.apply(quota(f"{own}-{name}").min(**least).max(cpu=20, memory=20).below(f"{own}-p").manifest)

    def answer(spec: dict[str, Any]) -> str:
        return str(yaml.safe_load(trial.call("PATCH", path_of(trial, f"{own}-p"), {"spec": spec}).body).get("message"))

    assert (
        answer({"min": {"memory": None}}) == f"{DENIED}{KEYS}{own}-{which}'s min keys are not all included in {own}-p's"
    )
    assert answer({"max": {"pods": "9"}}) in {
        f"{DENIED}{KEYS}{own}-{name}'s max keys are not the same with {own}-p's" for name in ("x", "y")
    }
    assert answer({"min": {"memory": "9"}}) == "None"


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-049", severity="normal")
def test_a_quantity_of_a_million_digits_is_refused(trial: Trial) -> None:
    """The API server or the webhook refuses it at once, and another quota is stored afterwards."""
    large = quota(f"{trial.name}-b").min(cpu="1" + "0" * 1_000_000).max(cpu=2)
    assert trial.call("POST", path_of(trial, "").rstrip("/"), large.manifest).code in {400, 413, 422}
    trial.apply(quota(f"{trial.name}-b").min(cpu=1).max(cpu=2).manifest)


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-098", severity="normal")
def test_whether_a_pod_may_be_preempted_does_not_change(trial: Trial) -> None:
    """The label `preemptible` of a stored pod is refused another value, and another label is accepted."""
    own = f"{trial.name}-a"
    trial.apply(quota(own).max(cpu=4).manifest)
    trial.submit(pod("p").request(cpu=1).quota(own))
    path = f"/api/v1/namespaces/{trial.name}/pods/p"

    answer = trial.call("PATCH", path, {"metadata": {"labels": {PREEMPTIBLE: "false"}}})

    assert not answer.ok
    assert "Preemptible label is forbidden modify now." in answer.body.decode()
    assert trial.call("PATCH", path, {"metadata": {"labels": {"team": "a"}}}).ok


@pytest.mark.feature("QUOTA-5.unlabelled")
@pytest.mark.case("QU-097", severity="normal")
def test_a_pod_without_a_label_is_checked_by_its_namespace(trial: Trial) -> None:
    """The quota named like the namespace is a parent: a pod there without a label of a quota is refused."""
    trial.apply(quota(trial.name).max(cpu=4).parent().manifest)

    with pytest.raises(ApiRefused) as error:
        trial.submit(pod("plain"))

    assert f"pod can not be linked to a parentQuotaGroup,quota:{trial.name}, pod:plain" in str(error.value)


@pytest.mark.feature("QUOTA-5.unlabelled")
@pytest.mark.case("QU-343", severity="normal", source="spec QUOTA-R30")
def test_a_quota_of_that_name_elsewhere_has_no_pods_of_the_namespace(trial: Trial) -> None:
    """A parent in another namespace is named like the namespace of a pod without a label: the pod is accepted."""
    path = path_of(trial, "").replace(f"/{trial.name}/", "/default/").rstrip("/")
    elsewhere = quota(trial.name).max(cpu=4).parent().namespace("default")
    assert trial.call("POST", path, elsewhere.manifest).ok
    try:
        trial.settle()
        answer = trial.call("POST", f"/api/v1/namespaces/{trial.name}/pods", pod("plain").manifest)
        assert answer.ok, f"expected the pod to be accepted, found {answer.body.decode()}"
    finally:
        trial.call("DELETE", f"{path}/{trial.name}")


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-344", severity="normal", source="Koordinator pkg/webhook/elasticquota/quota_topology.go")
@pytest.mark.parametrize("which", ["system", "default"])
def test_special_quotas(trial: Trial, which: str) -> None:
    """The quota of the system does not change, that of pods without a quota does, and neither is deleted."""
    name = f"koordinator-{which}-quota"
    path = path_of(trial, name).replace(f"/{trial.name}/", "/koordinator-system/")

    def refusal(method: str, change: dict[str, Any] | None = None) -> str:
        """A dry run, which leaves the quota to other cases."""
        return str(yaml.safe_load(trial.call(method, f"{path}?dryRun=All", change).body).get("message"))

    assert trial.reaches(lambda: trial.call("GET", path).ok, within=15), f"expected a quota {name}"
    changed = refusal("PATCH", {"spec": {"max": {"cpu": "7"}}})
    assert changed == (f"{DENIED}invalid quota {name}" if which == "system" else "None")
    assert refusal("DELETE") == f"{DENIED}can not delete quotaGroup :{name}"


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-057", severity="normal")
def test_a_quota_with_pods_stays(trial: Trial) -> None:
    """A quota is not deleted while pods name it."""
    own = family(trial)
    trial.submit(*(pod(name).quota(f"{own}-a") for name in ("one", "two", "three")))
    listed = f"{own}/one, {own}/three, ..."
    message = f"{DENIED}delete quota failed, quota {own}-a has 3 child pods: {listed}"

    def refusal() -> str:
        return str(yaml.safe_load(trial.call("DELETE", path_of(trial, f"{own}-a")).body).get("message"))

    assert trial.reaches(lambda: refusal() == message, within=5), refusal()


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-058", severity="normal")
def test_pods_of_a_tree_get_its_node_selector(trial: Trial) -> None:
    """A pod whose quota belongs to a tree is stored with the node affinity of the tree's profile, in each term that it
    has itself; another is not, and none is once the profile is deleted."""
    tree = {"labels": {TREE_ID: trial.name}}
    not_slow = {"key": "disk", "operator": "NotIn", "values": ["slow"]}
    selector = {"matchLabels": {"pool": "big"}, "matchExpressions": [not_slow]}
    trial.apply(
        {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": "big", **tree},
            "spec": {"quotaName": f"{trial.name}-root", "nodeSelector": selector},
        },
        quota(f"{trial.name}-t").max(cpu=2).label(TREE_ID, trial.name).manifest,
        quota(f"{trial.name}-x").max(cpu=2).manifest,
    )
    trial.pass_time(2)  # the webhook receives the profile from a watch

    either = [{"key": "rack", "operator": "In", "values": [rack]} for rack in ("a", "b")]
    choosy = pod("choosy").quota(f"{trial.name}-t")
    own = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in either]}
    choosy.manifest["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": own}}
    trial.submit(pod("inside").quota(f"{trial.name}-t"), pod("outside").quota(f"{trial.name}-x"), choosy)

    stored = {pod["metadata"]["name"]: pod["spec"].get("affinity") for pod in raw_pods(trial)}
    rules = [{"key": "pool", "operator": "In", "values": ["big"]}, not_slow]

    def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
        all_terms = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": all_terms}}

    assert stored["inside"] == required(rules)
    assert stored["choosy"] == required(*([rule, *rules] for rule in either))
    assert not stored["outside"]
    assert trial.call("DELETE", f"{QUOTA_PROFILES}/namespaces/{trial.name}/elasticquotaprofiles/big").ok
    trial.pass_time(2)
    trial.submit(pod("late").quota(f"{trial.name}-t"))
    assert not next(pod for pod in raw_pods(trial) if pod["metadata"]["name"] == "late")["spec"].get("affinity")


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-059", severity="normal")
def test_admission_bounds_pending_pods_too(trial: Trial) -> None:
    """With EnableQuotaAdmission a pod beyond max, or beyond the limit of an annotation in its place, is not even
    stored, whether the others have a node or not. Pods that ended do not count."""
    options = ("--enable-quota-admission", "--disable-device-resource-spec")
    with quota_webhook(trial, *options, name="of-the-case"):
        own = f"{trial.name}-a"
        trial.apply(quota(own).max(cpu=4).manifest)
        trial.submit(pod("one").request(cpu=3).quota(own))

        with pytest.raises(ApiRefused) as error:
            trial.submit(pod("two").request(cpu=2).quota(own))

        message = f"exceeded quota: {trial.name}/{own}, requested: cpu=2, used: cpu=3, limited: cpu=4"
        assert message in str(error.value)
        trial.submit(pod("two").request(cpu=1).quota(own))
        path = f"{trial.path('Pod', 'one')}/status"
        assert trial.call("PATCH", path, {"status": {"phase": "Succeeded"}}).ok
        trial.pass_time(2)
        trial.submit(pod("three").request(cpu=3).quota(own))
        other = f"{trial.name}-b"
        trial.apply(quota(other).max(cpu=4).annotation(ADMISSION, '{"cpu": "2"}').manifest)
        trial.pass_time(2)
        with pytest.raises(ApiRefused) as error:
            trial.submit(pod("four").request(cpu=3).quota(other))
        assert "limited: cpu=2" in str(error.value)


def raw_pods(trial: Trial) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = yaml.safe_load(trial.call("GET", f"/api/v1/namespaces/{trial.name}/pods").body)[
        "items"
    ]
    return items
