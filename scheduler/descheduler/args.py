"""Arguments of plugins: parsing and validation. Names and defaults are those of Koordinator's descheduler/v1alpha2."""

import re
from typing import Any, ClassVar, TypeVar

import msgspec

from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.label_selectors import parse_selector
from seatrial.scheduler.api.migration import EVICT_DIRECTLY, RESERVATION_FIRST
from seatrial.scheduler.api.wire import LabelSelector, without_null_fields
from seatrial.scheduler.api.wrong_values import readable, shown
from seatrial.scheduler.descheduler.limits import IntOrPercent
from seatrial.scheduler.pods.selectors import selector_error

_PERCENT = re.compile(r"\d{1,9}%", re.ASCII)

GATES = frozenset(
    {
        "MaxUnavailablePerWorkload",
        "MaxMigratingPerWorkload",
        "MaxMigratingPerNode",
        "MaxMigratingPerNamespace",
        "MaxMigratingGlobally",
        "ExpectedReplicas",
        "PVC",
        "BarePods",
        "LocalStorage",
        "SystemCritical",
        "PriorityThreshold",
        "LabelSelector",
        "Namespaces",
        "NodeFit",
    }
)
EVICTION, DELETE, SOFT = "Eviction", "Delete", "SoftEviction"
POLICIES = frozenset({EVICTION, DELETE, SOFT})


class ArgsError(ValueError):
    """An argument cannot be used. The message has the field, what was expected and what was found."""


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Base of all plugin arguments."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset()  # fields for which "", [] and {} mean the default
    api_version: str = ""
    kind: str = ""

    def check(self) -> None:
        """
        Raises:
            ArgsError: a value cannot be used.
        """


class Namespaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Namespaces in which pods may be evicted: only those included, or all but those excluded."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def check(self, field: str) -> None:
        if self.include and self.exclude:
            raise ArgsError(f"{field}: only one of Include/Exclude namespaces can be set")

    def allows(self, namespace: str) -> bool:
        return namespace in self.include if self.include else namespace not in self.exclude


class PriorityThreshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods of this priority or above are not evicted; given by value or by the name of a class."""

    value: int | None = None
    name: str = ""


class ObjectLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits the migrations of one workload's pods within `duration`."""

    duration: str = "0s"
    max_migrating: IntOrPercent | None = None
    burst: int = 0


class Arbitration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often waiting jobs are arbitrated."""

    enabled: bool = True
    interval: str = "500ms"


class MigrationControllerArgs(Args, frozen=True):
    """Arguments of the evict and filter plugin MigrationController."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset(
        {"defaultJobMode", "evictionPolicy", "objectLimiters", "schedulerNames"}
    )
    dry_run: bool = False
    max_concurrent_reconciles: int = 1
    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: PriorityThreshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: Namespaces = Namespaces()
    node_fit: bool = False
    node_selector: str = ""
    skip_eviction_gates: tuple[str, ...] = ()
    max_migrating_globally: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_namespace: int | None = None
    max_migrating_per_workload: IntOrPercent | None = None
    max_unavailable_per_workload: IntOrPercent | None = None
    skip_check_expected_replicas: bool | None = None
    object_limiters: dict[str, ObjectLimit] = msgspec.field(
        default_factory=lambda: {"workload": ObjectLimit(duration="5m")}
    )
    default_job_mode: str = RESERVATION_FIRST
    default_job_ttl: str = msgspec.field(default="5m", name="defaultJobTTL")
    scheduler_names: tuple[str, ...] = ("koord-scheduler",)
    evict_qps: float | str = msgspec.field(default=10.0, name="evictQPS")
    evict_burst: int = 1
    eviction_policy: str = EVICTION
    default_delete_options: dict[str, Any] | None = None
    arbitration_args: Arbitration = Arbitration()

    @property
    def qps(self) -> float:
        return float(self.evict_qps)

    def check(self) -> None:
        self.namespaces.check("namespaces")
        check_selector("labelSelector", self.label_selector)
        node_selector("nodeSelector", self.node_selector)
        if self.max_concurrent_reconciles < 1:
            raise ArgsError(f"maxConcurrentReconciles: expected 1 or more, found {self.max_concurrent_reconciles}")
        for field in ("maxMigratingGlobally", "maxMigratingPerNode", "maxMigratingPerNamespace"):
            value = getattr(self, snake(field))
            if value is not None and value < 0:
                raise ArgsError(f"{field} should be greater or equal 0")
        for field in ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"):
            check_int_or_percent(field, getattr(self, snake(field)))
        try:
            positive = self.qps > 0
        except ValueError:
            raise ArgsError(f"evictQPS: expected a number, found {self.evict_qps!r}") from None
        if not positive:
            raise ArgsError("evictQPS must be greater than 0")
        if self.evict_burst < 1:
            raise ArgsError("evictBurst must be greater than 0")
        for gate in self.skip_eviction_gates:
            if gate not in GATES:
                raise ArgsError(f"skipEvictionGates: unknown eviction gate {gate!r}; known: {', '.join(sorted(GATES))}")
        if self.default_job_mode not in {RESERVATION_FIRST, EVICT_DIRECTLY}:
            raise ArgsError(
                f"defaultJobMode: expected ReservationFirst or EvictDirectly, found {self.default_job_mode!r}"
            )
        if self.eviction_policy not in POLICIES:
            raise ArgsError(
                f"evictionPolicy: expected Eviction, Delete or SoftEviction, found {self.eviction_policy!r}"
            )
        check_duration("defaultJobTTL", self.default_job_ttl)
        if check_duration("arbitrationArgs.interval", self.arbitration_args.interval) <= 0:
            raise ArgsError("arbitrationArgs.interval: expected more than 0")
        for name, limit in self.object_limiters.items():
            if name not in {"workload", "namespace"}:
                raise ArgsError(f"objectLimiters: expected workload or namespace, found {name!r}")
            check_duration(f"objectLimiters.{name}.duration", limit.duration)
            check_int_or_percent(f"objectLimiters.{name}.maxMigrating", limit.max_migrating)
            if limit.burst < 0:
                raise ArgsError(f"objectLimiters.{name}.burst: expected 0 or more, found {limit.burst}")


A = TypeVar("A", bound=Args)


def read_args(kind: type[A], document: Any) -> A:
    """The arguments in `document` (plain data, None: all defaults).

    A field that is null has its default, as in Go; so have the fields in `kind.empty_is_default` that are empty.

    Raises:
        ArgsError: unknown or wrong fields.
    """
    fields = without_null_fields(document)
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if value or name not in kind.empty_is_default}
    try:
        result = msgspec.convert({} if fields is None else fields, kind)
    except msgspec.ValidationError as error:
        raise ArgsError(readable(error, document)) from error
    result.check()
    return result


def node_selector(field: str, text: str) -> LabelSelector:
    """The selector of nodes in `text`, such as `pool=fast`; "" selects all nodes. `field` is its path, for the message.

    Raises:
        ArgsError: it cannot be parsed.
    """
    try:
        return LabelSelector(match_expressions=parse_selector(text))
    except ValueError as error:
        raise ArgsError(f"{field}: {error}") from None


def check_selector(field: str, selector: LabelSelector | None) -> None:
    """
    Raises:
        ArgsError: the API machinery would refuse the selector, for example an operator that does not exist.
    """
    wrong = selector_error(selector) if selector is not None else ""
    if wrong:
        raise ArgsError(f"{field}: {wrong}")


def check_duration(field: str, text: str) -> float:
    """The Go duration `text` (such as 5m) in seconds. `field` is its path, for the message.

    Raises:
        ArgsError: it is not a duration, or negative.
    """
    duration = go_duration(text)
    if duration is None or duration < 0:
        raise ArgsError(f"{field}: expected a duration such as 5m or 500ms, found {shown(text)}")
    return duration


def check_int_or_percent(field: str, value: IntOrPercent | None) -> None:
    """
    Raises:
        ArgsError: it is neither an int of 0 and more nor a percentage.
    """
    if value is None or (isinstance(value, int) and value >= 0):
        return
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return
    raise ArgsError(f"{field}: expected a number of 0 and more or a percentage such as 10%, found {value!r}")


def snake(field: str) -> str:
    """A field's name in Python, for example `maxUnavailable` → `max_unavailable`."""
    return re.sub(r"[A-Z]", lambda item: "_" + item.group().lower(), field)
