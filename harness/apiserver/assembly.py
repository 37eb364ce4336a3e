"""Builds a complete API server: store, admission, controllers, and the objects that every cluster starts with."""

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.admission.chain import SYSTEM_CLASSES
from seatrial.harness.apiserver.admission.cluster_ips import SERVICES, ClusterIps
from seatrial.harness.apiserver.admission.pod_groups import (
    JOB_KINDS,
    POD_GROUPS,
    PodGroupAdmission,
    drop_job_scheduling,
)
from seatrial.harness.apiserver.bootstrap.endpoint import store_service
from seatrial.harness.apiserver.bootstrap.objects import store_bootstrap_objects
from seatrial.harness.apiserver.controllers.autoscalers import Autoscalers
from seatrial.harness.apiserver.controllers.budgets import Budgets
from seatrial.harness.apiserver.controllers.certificates import Certificates
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.cronjobs import CronJobs
from seatrial.harness.apiserver.controllers.daemonsets import DaemonSets
from seatrial.harness.apiserver.controllers.deployments import Deployments
from seatrial.harness.apiserver.controllers.device_taints import DeviceTaintEviction
from seatrial.harness.apiserver.controllers.endpoints import Endpoints
from seatrial.harness.apiserver.controllers.ephemeral_claims import EphemeralClaims
from seatrial.harness.apiserver.controllers.event_expiry import EventExpiry
from seatrial.harness.apiserver.controllers.garbage import GarbageCollector
from seatrial.harness.apiserver.controllers.jobs import Jobs
from seatrial.harness.apiserver.controllers.limits import LIMIT_RANGES, LimitRanger
from seatrial.harness.apiserver.controllers.namespaces import NAMESPACES, Namespaces
from seatrial.harness.apiserver.controllers.nodes import Nodes
from seatrial.harness.apiserver.controllers.pod_groups import PodGroupProtection
from seatrial.harness.apiserver.controllers.quotas import Quotas
from seatrial.harness.apiserver.controllers.replicasets import REPLICATION_CONTROLLERS, ReplicaSets
from seatrial.harness.apiserver.controllers.resource_claims import STAMPED, ResourceClaims
from seatrial.harness.apiserver.controllers.service_addresses import ServiceAddresses
from seatrial.harness.apiserver.controllers.service_ranges import ServiceRanges
from seatrial.harness.apiserver.controllers.statefulsets import StatefulSets
from seatrial.harness.apiserver.controllers.volumes import CLAIMS, VOLUMES, Volumes
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.initial_definitions import store_definitions
from seatrial.harness.apiserver.request.options import Options
from seatrial.harness.apiserver.schemas.shipped import KOORDINATOR
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.storage.store import Object
from seatrial.scheduler.api.clock import Clock, rfc3339

_LIMITED = frozenset({("", "pods"), ("", "persistentvolumeclaims")})


def build_server(
    clock: Clock,
    *,
    seed: int = 0,
    history: int | None = None,
    authority: Authority | None = None,
    workload_with_job: bool = False,
) -> ApiServer:
    """An API server with controllers, initial namespaces, system priority classes, shipped CRDs and default roles.

    `workload_with_job`: the feature gate WorkloadWithJob (alpha) is on: Jobs get PodGroups.
    Without an authority CertificateSigningRequests are not signed: no TLS server would trust the certificates.
    """
    server = ApiServer(clock, seed=seed, history=history)
    ranges = server.store.collection(LIMIT_RANGES)

    def limited(resource: Resource, namespace: str) -> bool:
        return resource.key in _LIMITED and len(ranges) > 0 and any(True for _ in ranges.each(namespace))

    server.admission.plugins += [
        (LimitRanger(server.store), limited),
        (ClusterIps(server.store), lambda resource, _: resource.key == SERVICES),
        (PodGroupAdmission(server.store), lambda resource, _: resource.key == POD_GROUPS),
    ]
    if not workload_with_job:
        server.admission.plugins.append((drop_job_scheduling, lambda resource, _: resource.key in JOB_KINDS))
    server.admission.last.append(Quotas(server.objects))
    GarbageCollector(server.objects, server.registry)
    Budgets(server.objects)
    EventExpiry(server.objects)
    Nodes(server.objects, server.registry)
    Namespaces(server.objects, server.registry, authority.pem.decode() if authority else "").create_first()
    control = Control(server.objects, server.registry)
    ReplicaSets(control)
    ReplicaSets(control, REPLICATION_CONTROLLERS)
    Deployments(control)
    StatefulSets(control)
    DaemonSets(control)
    Jobs(control, gangs=workload_with_job)
    CronJobs(control)
    Endpoints(control)
    Autoscalers(control, server.registry)
    EphemeralClaims(control)
    claims = ResourceClaims(control)
    server.admission.plugins.append((claims.admit, lambda resource, _: resource.key in STAMPED))
    server.admission.last.append(claims.check_access)
    DeviceTaintEviction(control)
    PodGroupProtection(control)
    volumes = Volumes(control)
    server.admission.plugins.append((volumes.admit, lambda resource, _: resource.key in {VOLUMES, CLAIMS}))
    if authority is not None:
        Certificates(control, authority)
    for name, value in SYSTEM_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value, "description": "Used by the system's own pods."}
        _create(server, ("scheduling.k8s.io", "priorityclasses"), body)
    now = rfc3339(clock.now())
    store_definitions(server.store, now)
    _create(server, NAMESPACES, {"metadata": {"name": KOORDINATOR}})
    store_bootstrap_objects(server.store, server.registry, now, authority.pem.decode() if authority else "")
    ServiceRanges(control)
    ServiceAddresses(control)
    store_service(server.store, now)
    return server


def _create(server: ApiServer, collection: tuple[str, str], body: Object) -> None:
    resource = server.registry.storage(collection)
    assert resource is not None
    server.objects.create(resource, "", body, Options())
