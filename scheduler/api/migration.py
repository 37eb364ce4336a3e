"""PodMigrationJob: the migration of one pod to another node (Koordinator apis/scheduling/v1alpha1)."""

from typing import Any

from seatrial.scheduler.api.reservation import ObjectReference
from seatrial.scheduler.api.wire import ObjectMeta, Wire

JOBS_PATH = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"

RESERVATION_FIRST, EVICT_DIRECTLY = "ReservationFirst", "EvictDirectly"
PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"

EVICT_ANNOTATION = "descheduler.alpha.kubernetes.io/evict"
EVICT_REASON = "koordinator.sh/evict-reason"
EVICT_TRIGGER = "koordinator.sh/evict-trigger"
CREATED_BY = "koordinator.sh/job-created-by"
PASSED_ARBITRATION = "descheduler.koordinator.sh/passed-arbitration"
EVICT_POLICY = "koordinator.sh/evict-policy"
SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
RESERVATION_CREATED_BY = "app.kubernetes.io/created-by"
KOORD_DESCHEDULER = "koord-descheduler"


class ReservationOptions(Wire, frozen=True):
    """The Reservation that a migration uses, or the template for it."""

    reservation_ref: ObjectReference | None = None
    template: dict[str, Any] | None = None


class JobSpec(Wire, frozen=True):
    """What is to be migrated, and how; durations are texts such as `5m`."""

    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    pod_ref: ObjectReference = ObjectReference()
    reservation_options: ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class JobCondition(Wire, frozen=True):
    """One condition of a migration."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class JobStatus(Wire, frozen=True):
    """How far a migration is."""

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    conditions: tuple[JobCondition, ...] = ()

    def condition(self, type_: str) -> JobCondition | None:
        return next((condition for condition in self.conditions if condition.type == type_), None)


class PodMigrationJob(Wire, frozen=True):
    """Cluster-scoped; `spec.pod_ref` is the pod to migrate, `status.pod_ref` the pod that replaces it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def pod_key(self) -> str:
        return f"{self.spec.pod_ref.namespace}/{self.spec.pod_ref.name}"

    @property
    def pending(self) -> bool:
        return self.status.phase in {"", PENDING}

    @property
    def running(self) -> bool:
        return self.status.phase == RUNNING

    @property
    def open(self) -> bool:
        """Whether the job has not ended."""
        return self.pending or self.running

    @property
    def passed(self) -> bool:
        """Whether arbitration has let it through."""
        return self.metadata.annotations.get(PASSED_ARBITRATION) == "true"

    @property
    def reservation_name(self) -> str:
        """The reservation that the job uses; "" if none has been named yet."""
        options = self.spec.reservation_options
        return options.reservation_ref.name if options and options.reservation_ref else ""
