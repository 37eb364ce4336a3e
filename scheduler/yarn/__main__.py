"""The program `seatrial yarn-operator`: Hadoop YARN on batch resources, as a process."""

import asyncio
import logging
import sys
from pathlib import Path
from urllib.parse import urlsplit

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, Server, load_server
from seatrial.scheduler.serving.process import log_to_stderr, on_end_signal
from seatrial.scheduler.yarn.app import build_operator

app = cyclopts.App(name="seatrial yarn-operator", result_action="return_value")


@app.default
def run(*, resource_manager: str, kubeconfig: Path | None = None) -> int:
    """Give NodeManagers the batch resources that Kubernetes' pods leave, and tell Kubernetes what YARN uses.

    Until SIGTERM or Ctrl-C. A NodeManager is a pod with the annotation yarn.hadoop.apache.org/node-id.

    Args:
        resource_manager: Where the ResourceManager's REST API is, as in http://rm:8088.
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
    """
    log_to_stderr(logging.INFO)
    try:
        address = urlsplit(resource_manager)
        if address.scheme != "http" or not address.hostname:
            raise ValueError(f"--resource-manager: expected http://HOST:PORT, found {resource_manager!r}")
        yarn = Server(address.hostname, address.port or 8088, address.path.rstrip("/"), None, "")
        server = load_server(kubeconfig)
    except (KubeconfigError, ValueError) as error:
        print(f"yarn-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2

    async def operate() -> int:
        clock = WallClock()
        cluster, manager = (HttpTransport(each, clock.faults) for each in (server, yarn))
        operator = build_operator(cluster, manager, clock)
        ended = asyncio.Event()
        on_end_signal(ended.set)
        operator.start()
        await ended.wait()
        operator.stop()
        cluster.close()
        manager.close()
        return 0

    return uvloop.run(operate())


if __name__ == "__main__":
    sys.exit(app())
