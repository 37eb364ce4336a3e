"""One node's agent: publishes the node's objects, and runs its pods from binding to deletion.

It does, through the API, what kubelet, the vendors' device plugins, koordlet and Koordinator's manager do for a node of
a real cluster. A `Runtime` runs the containers; a `Hardware` provides the devices.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from seatrial.harness.apiserver.quantities import CPU, MEMORY, Amounts, QuantityError, amount
from seatrial.harness.devices.hami_release import SHIPPED, VERSION_LABEL, HamiHost
from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes import devices as device_object
from seatrial.harness.nodes.addresses import PodAddresses, host_address
from seatrial.harness.nodes.admission import DEFERRED, UNEXPECTED, AdmissionError, NodeLedger
from seatrial.harness.nodes.capacity import capacity_and_allocatable
from seatrial.harness.nodes.claims import DeviceName, Granted, NodeClaims, PrepareError
from seatrial.harness.nodes.faults import REPORT_VERBS
from seatrial.harness.nodes.leases import Leases
from seatrial.harness.nodes.pod_run import PodRun
from seatrial.harness.nodes.pods import BoundPod, decode_pod, requests_of
from seatrial.harness.nodes.publisher import KUBELET_PORT, Hardware, Publisher
from seatrial.harness.nodes.references import Objects, References
from seatrial.harness.nodes.runtimes.protocol import NO_CONFIG, ContainerState, Runtime, Work
from seatrial.harness.nodes.scripted_reports import ScriptedReports
from seatrial.harness.nodes.slices import Way, offered
from seatrial.harness.nodes.status import (
    granted_before,
    is_ready,
    phase_of,
    refused_status,
    running_status,
    seen_states,
)
from seatrial.harness.nodes.usage import DEFAULT_POLICY, RESOURCES_ANNOTATION, NodeUse
from seatrial.harness.nodes.usage_model import UsageModel
from seatrial.harness.nodes.writer import NODES, Writer, pod_path, then
from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.resourceclaims import ResourceClaim
from seatrial.scheduler.api.slo import CollectPolicy
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import ResourceList, Wire, decoder

log = logging.getLogger(__name__)

_USAGE_KEY = RESOURCES_ANNOTATION.encode()

Manifest = dict[str, Any]

_SHARED_PLUGINS = tuple(vendor.shared_plugin for vendor in VENDORS.values() if vendor.shared_plugin is not None)
ASK_AGAIN = 2.0  # seconds until missing objects of a pod are read again


class _Generation(Wire, frozen=True):
    generation: int = 0


class _Generated(Wire, frozen=True):
    metadata: _Generation = _Generation()


_decode_generation = decoder(_Generated)


class NodeAgent:
    """The agent of one node."""

    def __init__(
        self,
        name: str,
        uid: str,
        number: int,
        hardware: Hardware,
        *,
        runtime: Runtime,
        writer: Writer,
        clock: Clock,
        address: str = "",
        facts: Mapping[str, str] | None = None,
        xpu_folder: Path | None = None,
        references: References | None = None,
        topology: Manifest | None = None,
        kubelet: tuple[str, int] | None = None,
        seed: int = 0,
        dra: Way | None = None,
    ) -> None:
        """`number` makes the node's addresses unique. A real machine has an `address`, which its pods share, and
        `facts`, which replace those of simulated nodes in `nodeInfo`. With `xpu_folder`, NPUs and MLUs are published
        from koord-device-daemon's files there. `references` reads the objects that pods refer to. `topology` is the
        node's NodeResourceTopology, or None. `kubelet` is the address and port that answers for the kubelet of a
        simulated node. `seed`: of the noise in the use of simulated pods. `dra`: devices are offered in
        ResourceSlices, and given to pods by their claims."""
        self.name, self.uid = name, uid
        self.hardware = hardware
        self.host_ip = address or (kubelet[0] if kubelet else host_address(number))
        self._references = references
        self._publisher = Publisher(
            name,
            uid,
            hardware,
            writer=writer,
            clock=clock,
            host_ip=self.host_ip,
            runtime=f"{runtime.name}://{runtime.version}",
            facts=facts or {},
            xpu_folder=xpu_folder,
            topology=topology,
            port=kubelet[1] if kubelet else KUBELET_PORT,
            dra=dra,
        )
        self._runtime, self._writer, self._clock = runtime, writer, clock
        self._dra = dra
        self._ledger = NodeLedger()
        self._claims = NodeClaims(name, writer)
        self._preparing: dict[str, msgspec.Raw] = {}  # pods whose claims are not prepared yet, by uid
        self._runs: dict[str, PodRun] = {}
        self._refused: set[str] = set()
        self.usage = UsageModel(clock, name, seed)
        self._reports = ScriptedReports(name, hardware, self._ledger, self.usage, clock)
        self._addresses = PodAddresses(number, loopback=bool(address))
        self._missed: dict[str, tuple[bool, msgspec.Raw]] = {}  # pods that changed while frozen, by uid
        self._amplified: Amounts = {}
        self.frozen = False
        self.ready = True

    # -- the node -----------------------------------------------------------------------------------------------------

    def boot(self, labels: dict[str, str], taints: Sequence[Manifest], booted: Callable[[], object]) -> None:
        """Publish NUMA nodes and devices, then labels and taints, then a Ready status: a Ready node is complete."""
        self._read_hardware()
        marks = self._publisher.labels(labels)
        self._ledger.hami = self._hami(labels)

        def say_ready() -> None:
            self._publisher.write_status(ready=self.ready)
            booted()

        def mark() -> None:
            self._publisher.mark(marks, taints, then(say_ready))

        self._publisher.publish_topology(lambda: self._publisher.publish(then(mark)))

    def refresh(self) -> None:
        """Read the hardware again and publish what has changed."""
        if self.frozen:
            return
        before, labels = self.devices, self._publisher.device_labels()
        self._read_hardware()
        if self.devices != before:
            # First the Device: a manager that still sees the old one would take back what the status shows.
            self._publisher.publish(then(lambda: self._publisher.write_status(ready=self.ready)))
            self._relabel(labels, self._publisher.device_labels())
            self._report_device_health(before)

    def _report_device_health(self, before: Sequence[Device]) -> None:
        """Write the health of devices to the status of pods; pods keep a failed device, as under kubelet."""
        was = {device_object.device_id(device): device.health.ok for device in before}
        changed = {name for name, well in self._well_ids().items() if was.get(name) != well}
        for run in self._runs.values():
            granted = {
                identifier for each in run.work.granted_ids.values() for ids in each.values() for identifier in ids
            }
            if run.states and not changed.isdisjoint(granted):
                self._write_pod(run)

    def _well_ids(self) -> dict[str, bool]:
        return {device_object.device_id(device): device.health.ok for device in self.devices}

    def _relabel(self, before: dict[str, str], now: dict[str, str]) -> None:
        """Koordinator's manager copies labels of the Device to the Node and never removes one."""
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        if changed:
            self._publisher.mark(changed)

    def apply_fault(self, verb: str, leases: Leases, *, on: bool) -> None:
        """Start (`on`) or end a fault of the node itself, one of `faults.NODE_VERBS`."""
        if verb == "not_ready":
            self.set_ready(not on)
        elif verb in REPORT_VERBS:
            self._reports.apply_fault(verb, on=on)
        elif on:
            self.freeze()
            leases.drop(self.name)
        else:
            self.thaw()
            leases.add(self.name, self.uid)

    def set_ready(self, ready: bool) -> None:
        """Set the node's Ready condition."""
        self.ready = ready
        self._publisher.write_status(ready=self.ready)

    def report_status(self) -> None:
        """Write the node's status again, as a kubelet does from time to time."""
        if not self.frozen:
            self._publisher.write_status(ready=self.ready)

    def freeze(self) -> None:
        """Ignore the API and write nothing; containers continue."""
        self.frozen = True

    def thaw(self) -> None:
        """Process the changes of the meantime, then write the status of the node and its pods."""
        self.frozen = False
        missed, self._missed = self._missed, {}
        for uid, (deleting, raw) in missed.items():
            self.pod_set(uid, deleting, raw)
        self._read_hardware()
        self._publisher.publish()
        self._publisher.write_status(ready=self.ready)
        for run in self._runs.values():
            if run.states:
                self._write_pod(run)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices as last read."""
        return self._publisher.devices

    def _read_hardware(self) -> None:
        self._publisher.look()
        _, allocatable = capacity_and_allocatable(self.hardware.machine, self._publisher.shown())
        self._ledger.set_hardware({**allocatable, **self._amplified}, () if self._dra else self.devices)

    def set_amplified(self, allocatable: ResourceList) -> None:
        """Set the CPU and memory of the Node object, which a kubelet admits pods by; {} where they are not amplified.

        Raises:
            QuantityError: an amount is not a quantity.
        """
        amounts = {name: amount(name, allocatable[name]) for name in (CPU, MEMORY) if name in allocatable}
        if amounts != self._amplified:
            self._amplified = amounts
            self._read_hardware()

    def _hami(self, labels: dict[str, str]) -> HamiHost:
        """HAMi's versions: a label of the fleet goes before the hardware's value."""
        driver = labels.get(words.GPU_DRIVER_LABEL, "")
        if not driver and any(device.vendor == "nvidia" for device in self.devices):
            driver = self.hardware.driver("nvidia").driver
        return HamiHost(driver, labels.get(VERSION_LABEL, SHIPPED))

    def keep(self, reservation: str | None) -> None:
        """Write the reservation for processes outside containers to the NodeResourceTopology; None removes it."""
        self._publisher.keep(reservation)

    # -- its pods -----------------------------------------------------------------------------------------------------

    def pod_set(self, uid: str, deleting: bool, raw: msgspec.Raw) -> None:
        """A pod bound to this node was created or has changed."""
        if self.frozen:
            self._missed[uid] = (deleting, msgspec.Raw(bytes(raw)))
            return
        run = self._runs.get(uid)
        if run is not None:
            if deleting and not run.stopping:
                self._stop(run, decode_pod(raw))
                return
            if _USAGE_KEY in bytes(raw):
                pod = decode_pod(raw)
                self.usage.changed(uid, pod.key, pod.metadata.annotations.get(RESOURCES_ANNOTATION, ""))
            if not self._runtime.real and _decode_generation(raw).metadata.generation != run.generation:
                self._resize(run, msgspec.Raw(bytes(raw)))
            if run.work.pod.spec.readiness_gates:
                self._read_gates(run, decode_pod(raw))
            return
        pod = decode_pod(raw)
        if deleting:
            self._preparing.pop(uid, None)
            self._writer.remove_pod(pod.metadata.namespace, pod.metadata.name, uid)
        elif uid in self._preparing:
            self._preparing[uid] = msgspec.Raw(bytes(raw))
        elif not pod.terminated and uid not in self._refused:
            if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
                self._preparing[uid] = msgspec.Raw(bytes(raw))
                self._prepare(uid)
            else:
                self._admit(pod, raw)

    def _offered(self) -> dict[DeviceName, Device]:
        """The entries of the node's slices."""
        return offered(self.devices, self._dra or "whole")

    def _prepare(self, uid: str) -> None:
        """Read and prepare the pod's claims, and start it; try again until that succeeds or the pod is gone."""
        if uid not in self._preparing:
            return
        pod = decode_pod(self._preparing[uid])

        def read(claims: Mapping[str, ResourceClaim | None]) -> None:
            if uid not in self._preparing:
                return
            if self.frozen:
                self._clock.call_later(ASK_AGAIN, lambda: self._prepare(uid))
                return
            try:
                granted = self._claims.prepare(pod, claims, self._offered())
            except PrepareError as error:
                self._tell(pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
                self._clock.call_later(ASK_AGAIN, lambda: self._prepare(uid))
                return
            self._admit(pod, self._preparing.pop(uid), granted)

        self._claims.read(pod, read)

    def _tell(self, pod: BoundPod, reason: str, message: str) -> None:
        """Write a Warning about the pod, once for each message."""
        meta = pod.metadata
        name = f"{meta.name}.{sha256(f'{meta.uid} {reason} {message}'.encode()).hexdigest()[:16]}"
        now = self._clock.timestamp()
        about = {"kind": "Pod", "apiVersion": "v1", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        event = {
            "metadata": {"name": name, "namespace": meta.namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kubelet", "host": self.name},
        }
        self._writer.create(f"/api/v1/namespaces/{meta.namespace}/events", event)

    def _resize(self, run: PodRun, raw: msgspec.Raw) -> None:
        """Give the pod's containers what its spec requests now, if there is room, as kubelet does (KEP-1287)."""
        pod = decode_pod(raw)
        run.generation = pod.metadata.generation
        if pod.spec == run.work.pod.spec or run.work.uid not in self._ledger.holdings:
            return
        why = self._ledger.resize(run.work.uid, requests_of(raw))
        run.waiting_resize = raw if why == DEFERRED else None
        run.resize_pending = why
        if not why:
            run.work.pod = msgspec.structs.replace(run.work.pod, spec=pod.spec)
        self._write_pod(run)

    def _release(self, uid: str) -> None:
        """Return what a pod held, and carry out resizes that waited for room."""
        self._give_back(uid)
        for run in list(self._runs.values()):
            if run.waiting_resize is not None:
                self._resize(run, run.waiting_resize)

    def _give_back(self, uid: str) -> None:
        self._ledger.release(uid)
        self._claims.release(uid)

    def _read_gates(self, run: PodRun, pod: BoundPod) -> None:
        closed = pod.closed_gates()
        if closed != run.closed_gates:
            run.closed_gates = closed
            self._write_pod(run)

    def pod_gone(self, uid: str) -> None:
        """The pod object was removed: end the pod and release what it held."""
        self._refused.discard(uid)
        self._missed.pop(uid, None)
        self._preparing.pop(uid, None)
        self.usage.ended(uid)
        run = self._runs.pop(uid, None)
        if run is not None:
            self._release(uid)
            if not run.stopping:
                self._runtime.stop(run.work, 0.0, lambda: None)

    def work(self, namespace: str, name: str) -> Work | None:
        """The pod of that name; None if it was not started here."""
        for run in self._runs.values():
            meta = run.work.pod.metadata
            if meta.name == name and meta.namespace == namespace:
                return run.work
        return None

    def works(self) -> list[Work]:
        """The running pods."""
        return [run.work for run in self._runs.values() if run.running]

    def device_use(self, policy: CollectPolicy = DEFAULT_POLICY) -> NodeUse | None:
        """The use of cards, CPU and memory by running pods; None while the node is frozen or its reports are off."""
        return None if self.frozen else self._reports.report(self._runs, self.devices, policy)

    def close(self) -> None:
        """End all pods without writing to the API, because the node was removed."""
        for run in self._runs.values():
            self._runtime.stop(run.work, 0.0, lambda: None)
        self._runs.clear()
        self._preparing.clear()

    def _admit(self, pod: BoundPod, raw: msgspec.Raw, prepared: Granted | None = None) -> None:
        """Start the pod, with the devices that its claims give to its containers."""
        before = granted_before(pod) if pod.status.container_statuses else None
        try:
            holding = self._ledger.admit(pod, requests_of(raw), before, prepared)
            grants = self._ledger.grants(pod, holding)
        except (AdmissionError, QuantityError) as error:
            self._refuse(pod, error)
            return
        ip = self.host_ip if pod.spec.host_network else pod.status.pod_ip or self._pod_ip()
        work = Work(pod, self.name, ip, grants, holding.granted_ids(), host_ip=self.host_ip)
        run = PodRun(work, pod.status.start_time or self._clock.timestamp(), pod.closed_gates())
        self._runs[pod.metadata.uid] = run
        self._answer_plugin_protocol(run)
        if before is not None:
            run.states = seen_states(pod)
        if self._references is not None and self._runtime.real:
            self._with_objects(run, resume=before is not None)
        else:
            self._start(run, resume=before is not None)

    def _start(self, run: PodRun, *, resume: bool) -> None:
        def changed(states: tuple[ContainerState, ...]) -> None:
            self._changed(run, states)

        if not resume or not self._runtime.resume(run.work, run.states, changed):
            self._runtime.start(run.work, changed)

    def _with_objects(self, run: PodRun, *, resume: bool) -> None:
        """Start the pod once all objects exist that its variables and volumes refer to."""
        assert self._references is not None

        def there(objects: Objects) -> None:
            if self._runs.get(run.work.uid) is not run or run.stopping:
                return
            if not objects.missing:
                run.work.objects = objects.contents
                self._start(run, resume=resume)
                return
            why = "; ".join(objects.missing)
            names = [container.name for container in run.work.pod.spec.containers]
            self._changed(run, tuple(ContainerState(name, reason=NO_CONFIG, message=why) for name in names))
            self._clock.call_later(ASK_AGAIN, lambda: self._with_objects(run, resume=resume))

        if self._runs.get(run.work.uid) is run and not run.stopping:
            self._references.gather(run.work.pod, there)

    def _refuse(self, pod: BoundPod, error: AdmissionError | QuantityError) -> None:
        meta = pod.metadata
        self._give_back(meta.uid)
        self._refused.add(meta.uid)
        reason, message = (
            (error.reason, error.message) if isinstance(error, AdmissionError) else (UNEXPECTED, str(error))
        )
        log.info("pod refused pod=%s node=%s reason=%s why=%s", pod.key, self.name, reason, message)
        text = f"Pod was rejected: {message}"
        status = refused_status(reason, text, now=self._clock.timestamp())
        self._writer.strategic(f"{pod_path(meta.namespace, meta.name)}/status", {"status": status})

    def _answer_plugin_protocol(self, run: PodRun) -> None:
        """Do what a device plugin that writes to the pod does (dynamic sMLU): set its annotation and unlock the
        node."""
        meta = run.work.pod.metadata
        answers = {name: value for grant in run.work.grants.values() for name, value in grant.annotations.items()}
        for plugin in _SHARED_PLUGINS:
            if plugin.assigned in answers and meta.annotations.get(plugin.assigned) != "true":
                patch = {"metadata": {"annotations": answers}}
                self._writer.merge(pod_path(meta.namespace, meta.name), patch)
                self._writer.merge(
                    f"{NODES}/{self.name}", {"metadata": {"uid": self.uid, "annotations": {plugin.lock: None}}}
                )

    def _changed(self, run: PodRun, states: tuple[ContainerState, ...]) -> None:
        """Called by the runtime when containers have changed."""
        run.states = states
        work = run.work
        if run.running:
            self.usage.started(work.uid, work.pod.key, work.pod.metadata.annotations.get(RESOURCES_ANNOTATION, ""))
        else:
            self.usage.ended(work.uid)
        if phase_of([state for state in states if not state.init], work.pod.spec.restart_policy) in {
            "Succeeded",
            "Failed",
        }:
            self._release(work.uid)
        self._write_pod(run)

    def _write_pod(self, run: PodRun) -> None:
        """One write at a time for a pod, so that an older status never lands on a newer one."""
        if self.frozen:
            return
        status = running_status(
            run.work,
            run.states,
            host_ip=self.host_ip,
            start=run.start,
            now=self._clock.timestamp(),
            well=self._well_ids(),
            closed_gates=run.closed_gates,
            explained=run.explained,
            resize_pending=run.resize_pending,
        )
        run.explained = run.explained or not is_ready(status)
        if run.in_flight:
            run.next_status = status
            return
        self._send_status(run, status)

    def _send_status(self, run: PodRun, status: Manifest) -> None:
        meta = run.work.pod.metadata
        run.in_flight = True

        def written(_response: Response) -> None:
            run.in_flight = False
            following, run.next_status = run.next_status, None
            if following is not None:
                self._send_status(run, following)

        patch = {"metadata": {"uid": meta.uid}, "status": status}
        self._writer.strategic(f"{pod_path(meta.namespace, meta.name)}/status", patch, written)

    def _stop(self, run: PodRun, pod: BoundPod) -> None:
        run.stopping = True
        meta = pod.metadata
        grace = meta.deletion_grace_period_seconds
        if grace is None:
            grace = pod.spec.termination_grace_period_seconds

        def stopped() -> None:
            self._give_back(meta.uid)
            self._writer.remove_pod(meta.namespace, meta.name, meta.uid)

        self._runtime.stop(run.work, float(grace), stopped)

    def _pod_ip(self) -> str:
        return self._addresses.next(run.work.ip for run in self._runs.values())
