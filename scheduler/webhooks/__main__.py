"""The program `seatrial webhooks`: the admission webhooks of pods, bindings, quotas and nodes as a process."""

import asyncio
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import cyclopts
import uvloop
import yaml

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.serving.http import serve, serve_on
from seatrial.scheduler.serving.process import log_to_stderr, on_end_signal
from seatrial.scheduler.webhooks.bindings import BYPASS_LABEL, BindingRules, Bindings
from seatrial.scheduler.webhooks.certificates import CertificateError, Renewal, load_context
from seatrial.scheduler.webhooks.following import Follower
from seatrial.scheduler.webhooks.label_rules import LabelRules
from seatrial.scheduler.webhooks.profiles import Profiles
from seatrial.scheduler.webhooks.quota_topology import QuotaGates, QuotaTopology
from seatrial.scheduler.webhooks.registration import configurations
from seatrial.scheduler.webhooks.reviews import Admission, routes
from seatrial.scheduler.webhooks.slo_config import SloConfigRules

# Seconds between two checks of the certificate; kubelet writes a changed Secret about a minute after the change.
CHECK_SECONDS = 10.0
app = cyclopts.App(name="seatrial webhooks", result_action="return_value")


@app.default
def run(
    *,
    port: int = 9443,
    cert_dir: Path,
    address: str = "127.0.0.1",
    host: str = "",
    namespace: str = "",
    disable_device_resource_spec: bool = False,
    nodes: bool = False,
    node_labels: str = "",
    kubeconfig: Path | None = None,
    listen_fd: int | None = None,
    drain: float = 0.0,
    multi_quota_tree: bool = False,
    guarantee_usage: bool = False,
    enable_quota_admission: bool = False,
    enable_quota_admission_on_update: bool = False,
    enable_update_resource_key: bool = False,
    support_parent_quota_submit_pod: bool = False,
    disable_default_quota: bool = False,
    colocation: bool = False,
    seed: int | None = None,
    enable_pod_enhanced_validator: bool = False,
    slo_config: bool = False,
    binding_admission_user_name: str = "",
    binding_admission_namespaces: str = "",
    binding_admission_exclude_namespaces: str = "kube-system",
    binding_admission_bypass_labels: str = BYPASS_LABEL,
    binding_admission_bypass_annotations: str = "",
    binding_admission_dry_run: bool = False,
) -> int:
    """Serve admission reviews until SIGTERM or Ctrl-C. A certificate renewed in its folder is used without restart.

    When it listens, it prints the webhook configurations that register it, as YAML for `kubectl apply -f -`, and closes
    its standard output.

    Args:
        port: The port; 0 for any free port.
        cert_dir: A folder with tls.crt and tls.key; if it has neither, a certificate is created there.
        address: The address to listen on; 0.0.0.0 for all interfaces.
        host: The name or address by which the API server reaches the webhooks; by default `address`.
        namespace: Register for pods of this namespace only.
        disable_device_resource_spec: Do not change requests (Koordinator's gate of that name), only refuse invalid
            ones.
        nodes: Register the webhook that amplifies nodes' allocatable CPU and memory (Koordinator's gate
            NodeMutatingWebhook).
        node_labels: With --nodes, only for nodes with these labels, as in a=b,c=d.
        kubeconfig: How to reach the API server. If given, ElasticQuotas are checked too.
        listen_fd: An inherited socket that listens already, instead of `port` and `address`.
        drain: Seconds to continue after SIGTERM, until API servers know that this replica goes; each answer then
            closes its connection. A second signal ends it at once.
        multi_quota_tree: Add the node affinity of their quota tree to new pods.
        guarantee_usage: A min must be covered by what the quotas above are guaranteed.
        enable_quota_admission: Refuse new pods beyond the max of their quota, pending pods included.
        enable_quota_admission_on_update: Likewise pods whose quota changes.
        enable_update_resource_key: The keys of a child's max may be some of its parent's; otherwise they are the same.
        support_parent_quota_submit_pod: Quotas with children may have pods too.
        disable_default_quota: Only pods with the label of a quota belong to one.
        colocation: Apply ClusterColocationProfiles to new pods, and refuse pods whose QoS class, priority class and
            requests do not fit together. Needs --kubeconfig.
        seed: Of the dice for profiles with a probability; by default they differ in each process.
        enable_pod_enhanced_validator: Refuse pods without the labels that the ConfigMap
            koordinator-system/pod-enhanced-validator-config demands. Needs --kubeconfig.
        slo_config: Refuse settings in the ConfigMap koordinator-system/slo-controller-config that are not valid, and
            labels by which a node would have two of them. Needs --kubeconfig.
        binding_admission_user_name: Only users whose name contains one of these, as in koord-scheduler,admin, may bind
            pods. Needs --kubeconfig.
        binding_admission_namespaces: With it, in these namespaces, as in a,b; "*" for all.
        binding_admission_exclude_namespaces: With it, not in these namespaces.
        binding_admission_bypass_labels: With it, pods with one of these labels are bound by anybody.
        binding_admission_bypass_annotations: With it, likewise pods with one of these annotations.
        binding_admission_dry_run: With it, count what would be denied, and deny nothing.
    """
    log_to_stderr()
    host = host or address
    try:
        names = tuple(dict.fromkeys((host, "localhost", "127.0.0.1")))
        context, authorities = load_context(cert_dir, names, WallClock().now())
    except CertificateError as error:
        print(f"webhooks: --cert-dir {error}", file=sys.stderr)  # noqa: T201
        return 2

    try:
        target = load_server(kubeconfig) if kubeconfig is not None else None
    except KubeconfigError as error:
        print(f"webhooks: {error}", file=sys.stderr)  # noqa: T201
        return 2
    amounts = {
        "--colocation": colocation,
        "--enable-pod-enhanced-validator": enable_pod_enhanced_validator,
        "--slo-config": slo_config,
        "--binding-admission-user-name": bool(binding_admission_user_name),
    }
    lacking = [option for option, value in amounts.items() if value]
    if target is None and lacking:
        print(f"webhooks: {lacking[0]} needs --kubeconfig, to follow what it depends on", file=sys.stderr)  # noqa: T201
        return 2
    binding_rules = BindingRules(
        _names(binding_admission_user_name),
        _names(binding_admission_namespaces),
        _names(binding_admission_exclude_namespaces),
        _names(binding_admission_bypass_labels),
        _names(binding_admission_bypass_annotations),
        binding_admission_dry_run,
    )

    async def serve_reviews() -> int:
        clock = WallClock()
        gates = QuotaGates(
            multi_quota_tree=multi_quota_tree,
            guarantee_usage=guarantee_usage,
            quota_admission=enable_quota_admission,
            quota_admission_on_update=enable_quota_admission_on_update,
            update_resource_key=enable_update_resource_key,
            parent_quota_pods=support_parent_quota_submit_pod,
            disable_default_quota=disable_default_quota,
        )
        devices = not disable_device_resource_spec
        admission = Admission(devices=devices)
        if target is not None:
            admission = Admission(
                QuotaTopology(gates, clock.monotonic),
                devices,
                Profiles(Random(seed)) if colocation else None,  # noqa: S311 dice, no secret
                LabelRules() if enable_pod_enhanced_validator else None,
                slo_config=SloConfigRules() if slo_config else None,
            )
            synced = asyncio.Event()
            follower = Follower(HttpTransport(target, clock.faults), clock)
            if binding_rules.users:
                admission = replace(admission, bindings=Bindings(binding_rules, follower.pods()))
            follower.follow(admission)
            follower.start(synced.set)
            await synced.wait()
        stopping, ending = asyncio.Event(), asyncio.Event()
        try:
            pages = routes(clock.faults, admission)
            if listen_fd is not None:
                server = await serve_on(pages, socket.socket(fileno=listen_fd), context, stopping.is_set)
            else:
                server = await serve(pages, address, port, context, stopping.is_set)
        except OSError as error:
            print(f"webhooks: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        taken = server.sockets[0].getsockname()[1]
        url = f"https://[{host}]:{taken}" if ":" in host else f"https://{host}:{taken}"
        manifests = configurations(
            url,
            authorities,
            namespace=namespace,
            mutating=devices or multi_quota_tree or colocation,
            quotas=admission.topology is not None,
            bindings=admission.bindings is not None,
            nodes=nodes,
            slo_config=slo_config,
            node_labels=dict(part.split("=", 1) for part in node_labels.split(",") if "=" in part),
        )
        yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)
        sys.stdout.flush()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # A reader that waits for the end of our output continues; closing the object alone keeps the descriptor open.
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)

        def stop() -> None:
            if stopping.is_set():
                ending.set()
            stopping.set()

        on_end_signal(stop)
        renewal = Renewal(cert_dir, context)

        def look() -> None:
            clock.call_later(CHECK_SECONDS, look)
            renewal.check()

        look()
        await stopping.wait()
        clock.call_later(drain, ending.set)
        await ending.wait()
        server.close()
        return 0

    return uvloop.run(serve_reviews())


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


if __name__ == "__main__":
    sys.exit(app())
