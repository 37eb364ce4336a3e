"""The program `seatrial manager`: the controllers as a process, against any API server."""

import asyncio
import logging
import sys
from pathlib import Path

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.manager.app import build_manager, build_routes
from seatrial.scheduler.manager.devices import GPU_SHARED_GATE
from seatrial.scheduler.serving.feature_gates import feature_gates as parsed_gates
from seatrial.scheduler.serving.http import serve
from seatrial.scheduler.serving.process import log_to_stderr, on_end_signal

app = cyclopts.App(name="seatrial manager", result_action="return_value")


@app.default
def run(
    *,
    kubeconfig: Path | None = None,
    selector: str = "",
    address: str = "127.0.0.1",
    port: int = 0,
    colocation_profile_controller: bool = False,
    colocation_profile_reconcile_by_default: bool = False,
    feature_gates: str = "",
    seed: int | None = None,
) -> int:
    """Keep a NodeMetric and a NodeSLO for each node, write batch, mid and device resources, and ratios.

    Until SIGTERM or Ctrl-C. Settings are in the ConfigMap koordinator-system/slo-controller-config.

    Args:
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        selector: A label selector: serve nodes with these labels only.
        address: Where health and metrics are served.
        port: At which port; 0 for none.
        colocation_profile_controller: Give labels, annotations and patches of ClusterColocationProfiles to pods that
            wait for a node already (Koordinator's gate ColocationProfileController): of profiles with the label
            config.koordinator.sh/controller-managed: "true" and a selector.
        colocation_profile_reconcile_by_default: With it, of profiles without the label too.
        feature_gates: As in EnableSyncGPUSharedResource=true: nodes whose colocation is enabled get
            koordinator.sh/gpu.shared, 100 for each healthy card.
        seed: Of the dice for profiles with a probability; by default they differ in each process.
    """
    log_to_stderr(logging.INFO)
    try:
        server = load_server(kubeconfig)
        gates = parsed_gates(feature_gates, {GPU_SHARED_GATE: False})
    except (KubeconfigError, ValueError) as error:
        print(f"manager: {error}", file=sys.stderr)  # noqa: T201
        return 2

    async def manage() -> int:
        clock = WallClock()
        transport = HttpTransport(server, clock.faults)
        manager = build_manager(
            transport,
            clock,
            selector=selector,
            profiles=colocation_profile_controller,
            all_profiles=colocation_profile_reconcile_by_default,
            gpu_shared=gates[GPU_SHARED_GATE],
            seed=seed,
        )
        try:
            listening = [await serve(build_routes(manager), address, port)] if port else []
        except OSError as error:
            print(f"manager: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        ended = asyncio.Event()
        on_end_signal(ended.set)
        manager.start()
        await ended.wait()
        manager.stop()
        for listener in listening:
            listener.close()
        transport.close()
        return 0

    return uvloop.run(manage())


if __name__ == "__main__":
    sys.exit(app())
