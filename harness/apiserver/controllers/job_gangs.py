"""The Workload and the PodGroup of a Job, with the feature gate WorkloadWithJob (alpha in Kubernetes 1.37).

Follows `pkg/controller/job/job_scheduling_manager.go` of 1.37.2: a Job that never started gets both, and its pods name
the PodGroup. Its policy is that of `spec.scheduling`, basic if there is none.
"""

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.admission.pod_groups import POD_GROUPS
from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING
from seatrial.harness.apiserver.controllers.owners import Dependents, controller_of, reference_to
from seatrial.harness.apiserver.controllers.podstate import condition
from seatrial.harness.apiserver.controllers.templates import name_hash
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import CollectionKey, Item, Object

WORKLOADS: CollectionKey = ("scheduling.k8s.io", "workloads")
DELEGATED = "scheduling.k8s.io/group-template-name"  # annotation: the template of the parent's Workload for this Job
_MAX_NAME = 253
_COMPONENT = "job-controller"
_COPIED = ("schedulingPolicy", "schedulingConstraints", "disruptionMode", "priorityClassName", "priority")


class JobGangs:
    """Makes and finds the scheduling objects of Jobs."""

    def __init__(self, control: Control, jobs: Resource) -> None:
        self._control, self._jobs = control, jobs
        self._workloads, self._groups = control.resource(WORKLOADS), control.resource(POD_GROUPS)
        self._owned_workloads = Dependents(control.objects, WORKLOADS)
        self._owned_groups = Dependents(control.objects, POD_GROUPS)

    def group_of(self, job: Item, pods: list[Item]) -> Item | None:
        """The PodGroup that new pods of the Job name, made if the Job never started; None if it has none.

        A Job whose template names a group, or that another controller owns, makes nothing; the latter may name the
        template of its owner's Workload by annotation, and gets a PodGroup then.

        Raises:
            ApiStatusError: an object cannot be made.
        """
        if job.obj["spec"]["template"]["spec"].get("schedulingGroup") is not None:
            return None
        parent = controller_of(job.obj)
        if parent is None:
            return self._own_group(job, is_new=_never_started(job.obj, pods))
        name = (job.obj["metadata"].get("annotations") or {}).get(DELEGATED)
        return None if name is None else self._delegated_group(job, parent, name, is_new=_never_started(job.obj, pods))

    def _own_group(self, job: Item, *, is_new: bool) -> Item | None:
        reference = {"apiGroup": "batch", "kind": "Job", "name": job.key[1]}
        uid = job.obj["metadata"]["uid"]
        mine = [each for each in self._owned_workloads.of(uid) if each.obj["spec"].get("controllerRef") == reference]
        template = _template(job.obj)
        if len(mine) == 1:
            workload = mine[0]
        elif mine or not is_new:
            return None  # more than one: ordinary scheduling
        else:
            workload = self._create_workload(job, {"controllerRef": reference, "podGroupTemplates": [template]})
        templates = workload.obj["spec"]["podGroupTemplates"]
        if len(templates) != 1:
            raise errors.bad_request(f"Workload {workload.key[1]} has {len(templates)} podGroupTemplates; expected 1")
        groups = self._groups_of(job, workload)
        if not groups and is_new:
            link = {"apiVersion": self._workloads.api_version, "kind": "Workload", "name": workload.key[1]}
            link["uid"] = workload.obj["metadata"]["uid"]
            groups = [self._create_group(job, workload, templates[0], link)]
        minimum = _min_count(template)
        if minimum is not None and _min_count(templates[0]) not in {None, minimum}:
            changed = {**templates[0], "schedulingPolicy": {"gang": {"minCount": minimum}}}
            self._store(self._workloads, workload, {"podGroupTemplates": [changed]})
        return self._follow(groups[0] if len(groups) == 1 else None, minimum)

    def _delegated_group(self, job: Item, parent: Object, name: str, *, is_new: bool) -> Item | None:
        reference = {
            "apiGroup": parent["apiVersion"].rpartition("/")[0],
            "kind": parent["kind"],
            "name": parent["name"],
        }
        for workload in self._control.objects.collection(self._workloads).each(job.key[0]):
            if workload.obj["spec"].get("controllerRef") == reference:
                break
        else:
            return None
        templates = workload.obj["spec"].get("podGroupTemplates") or []
        template = next((each for each in templates if each["name"] == name or not name), None)
        if template is None:
            return None
        group = next(iter(self._groups_of(job, workload)), None)
        if group is None and is_new:
            group = self._create_group(job, workload, template, None)
        return self._follow(group, _min_count(template))

    def _groups_of(self, job: Item, workload: Item) -> list[Item]:
        groups = self._owned_groups.of(job.obj["metadata"]["uid"])
        name = workload.key[1]
        return [each for each in groups if (each.obj["spec"].get("workloadRef") or {}).get("workloadName") == name]

    def _follow(self, group: Item | None, minimum: int | None) -> Item | None:
        """Give the PodGroup of a gang the minimum that its Job or template has now."""
        if group is None or minimum is None or _min_count(group.obj["spec"]) in {None, minimum}:
            return group
        return self._store(self._groups, group, {"schedulingPolicy": {"gang": {"minCount": minimum}}})

    def _store(self, resource: Resource, item: Item, fields: Object) -> Item:
        """Store fields of the spec; these kinds have no generation."""
        body = {**item.obj, "metadata": {**item.obj["metadata"]}, "spec": {**item.obj["spec"], **fields}}
        return self._control.objects.store_change(resource.key, item, body)

    def _create_workload(self, job: Item, spec: Object) -> Item:
        uid, namespace = job.obj["metadata"]["uid"], job.key[0]
        suffix = name_hash(f"(types.UID){uid}".encode())  # upstream hashes Go's text of the UID
        name = f"{job.key[1][: _MAX_NAME - len(suffix) - 1]}-{suffix}"
        metadata = {"name": name, "ownerReferences": [reference_to(self._jobs, job.obj)]}
        body = self._control.copied({"metadata": metadata, "spec": spec})
        try:
            made = self._control.objects.create(self._workloads, namespace, body, Options(manager=CONTROLLER_MANAGER))
        except Pending:
            raise  # a webhook is being called; the request continues by itself
        except ApiStatusError as refused:
            message = f"Failed to create Workload for Job {job.key[1]}: {refused.message}"
            self._control.recorder.record(_COMPONENT, self._jobs, job, WARNING, "FailedWorkloadCreate", message)
            raise
        self._tell(job, made)
        return made

    def _create_group(self, job: Item, workload: Item, template: Object, link: Object | None) -> Item:
        """Make the PodGroup of a template; `link`: a further owner."""
        owners = [reference_to(self._jobs, job.obj), *([link] if link else ())]
        copied = {field: template[field] for field in (*_COPIED, "resourceClaims") if template.get(field) is not None}
        reference = {"workloadName": workload.key[1], "templateName": template["name"]}
        metadata = {"name": group_name(workload.key[1], template["name"]), "ownerReferences": owners}
        body = self._control.copied({"metadata": metadata, "spec": {"workloadRef": reference, **copied}})
        made = self._control.objects.create(self._groups, job.key[0], body, Options(manager=CONTROLLER_MANAGER))
        self._tell(job, made)
        return made

    def _tell(self, job: Item, made: Item) -> None:
        kind = made.obj["kind"]
        message = f"Created {kind} {made.key[1]} for Job {job.key[1]}"
        self._control.recorder.record(_COMPONENT, self._jobs, job, NORMAL, f"{kind}Created", message)


def group_name(workload: str, template: str) -> str:
    """The name of the PodGroup of a template: both names, cut where they are too long, and a hash of them."""
    suffix = name_hash(f"{workload}{template}".encode())
    room = _MAX_NAME - len(suffix) - 2
    half = room // 2
    if len(workload) + len(template) > room:
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{suffix}"


def _never_started(job: Object, pods: list[Item]) -> bool:
    """Whether the Job is new; one that is older than the feature gate, suspended or not, stays without objects."""
    status = job.get("status") or {}
    begun = any(status.get(field) for field in ("startTime", "succeeded", "failed"))
    return not pods and not begun and condition(job, "Suspended") is None


def _template(job: Object) -> Object:
    """The only template of the Job's Workload."""
    spec = job["spec"]
    scheduling = spec.get("scheduling") or {}
    template: Object = {"name": f"{job['metadata']['name']}-pgt-0", "schedulingPolicy": {"basic": {}}}
    gang = (scheduling.get("schedulingPolicy") or {}).get("gang")
    if gang is not None:
        minimum = gang["minCount"] if gang.get("minCount") is not None else max(1, spec["parallelism"])
        template["schedulingPolicy"] = {"gang": {"minCount": minimum}}
    for field in ("schedulingConstraints", "disruptionMode", "resourceClaims"):
        if scheduling.get(field):
            template[field] = scheduling[field]
    if spec["template"]["spec"].get("priorityClassName"):
        template["priorityClassName"] = spec["template"]["spec"]["priorityClassName"]
    return template


def _min_count(spec: Object) -> int | None:
    """The minimum of a gang; None for the policy basic."""
    gang: Object | None = (spec.get("schedulingPolicy") or {}).get("gang")
    return None if gang is None else gang["minCount"]
