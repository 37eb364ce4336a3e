"""Admission of PodGroups of scheduling.k8s.io: the plugins PodGroupProtection and Priority."""

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import CollectionKey, Object, Store

POD_GROUPS: CollectionKey = ("scheduling.k8s.io", "podgroups")
PROTECTION = "scheduling.k8s.io/podgroup-protection"
JOB_KINDS: frozenset[CollectionKey] = frozenset({("batch", "jobs"), ("batch", "cronjobs")})


def drop_job_scheduling(resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
    """Drop `spec.scheduling` of Jobs, unless the stored object has it: the feature gate WorkloadWithJob is off."""
    del subresource
    spec, before = (_job_spec(resource, each) if each is not None else {} for each in (body, old))
    if before.get("scheduling") is None:
        spec.pop("scheduling", None)


def _job_spec(resource: Resource, obj: Object) -> Object:
    """The spec of a Job, or of the Jobs of a CronJob."""
    spec: Object = obj.get("spec") or {}
    return spec if resource.kind == "Job" else (spec.get("jobTemplate") or {}).get("spec") or {}


class PodGroupAdmission:
    """Adds the finalizer to new PodGroups, and the priority that their class defines."""

    def __init__(self, store: Store) -> None:
        self._classes = store.collection(("scheduling.k8s.io", "priorityclasses"))

    def __call__(self, resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
        """
        Raises:
            ApiStatusError: 403, the class does not exist or has another priority than the PodGroup.
        """
        del resource, subresource
        if old is not None:
            return
        finalizers = body["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            body["metadata"]["finalizers"] = [*finalizers, PROTECTION]
        self._set_priority(body)

    def _set_priority(self, body: Object) -> None:
        spec = body["spec"]
        class_name, value = spec.get("priorityClassName") or "", 0
        if class_name:
            entry = self._classes.get(("", class_name))
            if entry is None:
                raise _forbidden(body, f"no PriorityClass with name {class_name} was found")
            value = entry.obj.get("value", 0)
        else:
            for item in self._classes.each():
                if item.obj.get("globalDefault"):
                    value, spec["priorityClassName"] = item.obj.get("value", 0), item.key[1]
        priority = spec.get("priority")
        if priority is not None and priority != value:
            why = (
                f"priority set in the pod group ({priority}) must match the priority computed ({value}) based on the"
                " priority class set in the spec"
            )
            raise _forbidden(body, why)
        spec["priority"] = value


def _forbidden(body: Object, why: str) -> errors.ApiStatusError:
    return errors.forbidden("podgroups", POD_GROUPS[0], str(body["metadata"].get("name", "")), why)
