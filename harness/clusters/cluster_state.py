"""The state of a cluster that `seatrial up` started: from its processes, and from an answer of its API server."""

import http.client
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from seatrial.harness.clusters.detached import Detached

RUNNING = "running"
ANSWER_WITHIN = 2.0  # seconds, for the request to /readyz
_ANSWERS = frozenset({200, 401, 403})  # a server that refuses users without credentials does answer


def answers_ready(url: str) -> bool:
    """Whether an API server answers GET /readyz with success, or refuses strangers.

    No credentials are sent and the answer is not used further, so the server's certificate is not checked.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_WITHIN, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=ANSWER_WITHIN)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/readyz")
        return connection.getresponse().status in _ANSWERS
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def state_of(cluster: Detached, ready: Callable[[str], bool] = answers_ready) -> str:
    """`running`, or what has ended or does not answer; `ready` tells whether the API server at a URL is ready."""
    if not cluster.server_alive:
        return "API server ended" if cluster.kubeconfig else "node agents ended"
    problems = [] if ready(cluster.url) else ["API server does not answer"]
    problems += [f"{component} ended" for component in cluster.ended_programs]
    return ", ".join(problems) or RUNNING
