"""kube-apiserver's defaults for pods and pod templates.

Requests from limits, service links, host ports and the service account are set for pods only, not for templates.
Follows `pkg/apis/core/v1/defaults.go`, and the ServiceAccount admission plugin for the account's name. Shapes are
checked before.
"""

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import Any

from seatrial.harness.apiserver import quantities as quantity
from seatrial.harness.apiserver.text_cache import cached

Object = dict[str, Any]

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")
_POD_LEVEL = frozenset({quantity.CPU, quantity.MEMORY})
_HUGEPAGES = "hugepages-"
_MODE = 0o644


def fill(target: Object, **values: Any) -> None:
    """Set each of `values` whose field is absent, null or an empty string."""
    for name, value in values.items():
        if target.get(name) in (None, ""):
            target[name] = value


def default_pod(pod: Object) -> None:
    """Set the defaults of a pod, in place."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    host_network = spec.get("hostNetwork") is True
    for list_name in ("containers", "initContainers"):
        for container in spec.get(list_name) or ():
            _requests_from_limits(container["resources"])
            if host_network:
                for port in container.get("ports") or ():
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort")
    if spec.get("resources"):
        _pod_requests(spec)
    status = pod.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def default_template(template: Object) -> None:
    """Set the defaults of a workload's pod template, in place."""
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: Object) -> None:
    """Set the defaults that pods and templates share."""
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        spec["terminationGracePeriodSeconds"] = 30
    elif type(grace) is int and grace < 0:  # as upstream
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")  # serviceAccount is the deprecated name
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for list_name in _CONTAINERS:
        for container in spec.get(list_name) or ():
            default_container(container)
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    if resources := spec.get("resources"):
        canonical_resources(resources)
    if overhead := spec.get("overhead"):
        canonical_list(overhead)


def default_container(container: Object) -> None:
    """Set the defaults of a container, in place."""
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources:
        canonical_resources(resources)
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _reference(source)
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            _probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet") is not None:
            _http_get(hook["httpGet"])


@cached()
def pull_policy(image: str) -> str:
    """Always for the tag `latest`, explicit or implied; else IfNotPresent, also for a digest without a tag."""
    if not image:
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or (not tag and not digest) else "IfNotPresent"


def _reference(source: Object) -> None:
    if (field := source.get("fieldRef")) is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    if (resource := source.get("resourceFieldRef")) is not None:
        resource["divisor"] = canonical(resource.get("divisor") or "0")


def _probe(probe: Object) -> None:
    for name, number in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):  # upstream treats zero as unset
            probe[name] = number
    if (http := probe.get("httpGet")) is not None:
        _http_get(http)
    if (grpc := probe.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _http_get(action: Object) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


def default_volume(volume: Object) -> None:
    """Set the file modes of volumes; a volume without a source becomes an emptyDir."""
    for kind in _FILE_VOLUMES:
        if (source := volume.get(kind)) is not None and source.get("defaultMode") is None:
            source["defaultMode"] = _MODE
    if not any(source is not None for name, source in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    _file_items(volume)
    default_volume_source(volume)
    if (ephemeral := volume.get("ephemeral")) and (claim := ephemeral.get("volumeClaimTemplate")):
        default_claim_spec(claim.setdefault("spec", {}))
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference") or "")


def default_volume_source(source: Object) -> None:
    """Set the defaults of volume sources that pods and persistent volumes share."""
    if (host := source.get("hostPath")) is not None:
        host.setdefault("type", "")
    if (iscsi := source.get("iscsi")) is not None and not iscsi.get("iscsiInterface"):
        iscsi["iscsiInterface"] = "default"
    if (rbd := source.get("rbd")) is not None:
        for name, value in (("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")):
            if not rbd.get(name):
                rbd[name] = value


def _file_items(volume: Object) -> None:
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _reference(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _reference(item)
        if (token := source.get("serviceAccountToken")) is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = 3600


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of a PersistentVolumeClaim's spec, also in a template."""
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    if resources := spec.get("resources"):
        canonical_resources(resources)


def canonical_resources(resources: Object) -> None:
    """Convert the quantities of requests and limits to canonical form, in place."""
    if requests := resources.get("requests"):
        canonical_list(requests)
    if limits := resources.get("limits"):
        canonical_list(limits)


def canonical_list(resources: Object) -> None:
    """Convert a resource list's quantities to canonical form; invalid ones are left for validation."""
    for name, value in resources.items():
        resources[name] = canonical(value)


def canonical(value: Any) -> Any:
    """The canonical text of a quantity, rounded up to thousandths; any other value unchanged."""
    return _canonical(str(value)) if type(value) in {str, int, float} else value


@cached(longest=64)
def _canonical(value: str) -> str:
    try:
        text = quantity.canonical(value)
        return quantity.canonical(f"{quantity.milli(value)}m") if text.endswith(("u", "n")) else text
    except (quantity.QuantityError, ArithmeticError):
        return value


def _requests_from_limits(resources: Object) -> None:
    if limits := resources.get("limits"):
        requests = resources.get("requests")
        resources["requests"] = dict(limits) if not requests else limits | requests


def _pod_requests(spec: Object) -> None:
    """Set pod-level requests: the sum over containers, else the pod-level limits."""
    resources = spec["resources"]
    limits = resources.get("limits") or {}
    requests = dict(resources.get("requests") or {})
    for name, total in _container_sums(spec):
        requests.setdefault(name, total)
    for name, limit in limits.items():
        if name in _POD_LEVEL or name.startswith(_HUGEPAGES):
            requests.setdefault(name, limit)
    if requests:
        resources["requests"] = requests


def _container_sums(spec: Object) -> Iterator[tuple[str, Any]]:
    """Requests by resource: containers and sidecars are added, other init containers count by their maximum."""
    running: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            _highest(peak, sidecars)
        else:
            _add(own, sidecars)
            _highest(peak, own)
    for container in spec.get("containers") or ():
        _add(running, _amounts(container))
    _add(running, sidecars)
    _highest(running, peak)
    for name, total in running.items():
        yield name, canonical(f"{int((total * 1000).to_integral_value(ROUND_CEILING))}m")


def _amounts(container: Object) -> dict[str, Decimal]:
    by_name = {}
    for name, value in (container["resources"].get("requests") or {}).items():
        if name in _POD_LEVEL:
            try:
                by_name[name] = Decimal(quantity.milli(value)) / 1000
            except quantity.QuantityError:
                continue
    return by_name


def _add(total: dict[str, Decimal], more: dict[str, Decimal]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value


def _highest(total: dict[str, Decimal], other: dict[str, Decimal]) -> None:
    for name, value in other.items():
        total[name] = max(total.get(name, value), value)
