"""An embedded Kubernetes API server: one object store, two transports (HTTPS and in process).

Packages from the top down; a package imports only packages below it (import contract in pyproject.toml):

- `assembly`, `loading`, `transport`: build a server with controllers; give it a snapshot's objects; carry requests.
- `server`: routes a request to a verb and encodes the response.
- `controllers`: what kube-controller-manager does.
- `verbs`: create, update, patch, delete, get, list, watch, subresources.
- `request`, `printers`: parsed requests; tables for kubectl.
- `admission`, `validation`, `defaults`, `webhooks`: what happens to an object before it is stored.
- `access`, `streams`: identities and RBAC; protocols of exec, attach and portforward.
- `storage`: objects, revisions, selectors, pages, watches.
- `discovery`, `patching`: served kinds; patches and `managedFields`.
- `schemas`: types of fields, built-in and custom.
- `cel`, `protobuf`: expressions; bodies and answers of Go clients.
- `names`, `field_errors`, `errors`: rules of names, causes and `Status` errors.

This package is the door: outside of `harness/apiserver` nothing else of it is imported, but modules of plain values
(`conversation`, `label_selectors`, `quantities`). What it does and does not do is in
docs/embedded-api.md. Names are loaded when they are used, so that a client of one does not load the server.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from seatrial.harness.apiserver.access.authentication import authenticate
    from seatrial.harness.apiserver.access.authority import Authority
    from seatrial.harness.apiserver.access.credentials import (
        Credentials,
        identify,
        kubeconfig,
        make_credentials,
        server_context,
    )
    from seatrial.harness.apiserver.access.identity import ADMIN
    from seatrial.harness.apiserver.access.rbac import MASTERS
    from seatrial.harness.apiserver.assembly import build_server
    from seatrial.harness.apiserver.attempts import Answer, Call
    from seatrial.harness.apiserver.bootstrap.endpoint import publish_endpoint
    from seatrial.harness.apiserver.bootstrap.identity import set_cluster_uid
    from seatrial.harness.apiserver.loading import LoadError, load_objects
    from seatrial.harness.apiserver.long_computations import SWITCH_INTERVAL, in_thread
    from seatrial.harness.apiserver.request.bodies import VALUES_LIMIT
    from seatrial.harness.apiserver.schemas.shipped import KOORDINATOR, shipped
    from seatrial.harness.apiserver.storage.watch import event_line
    from seatrial.harness.apiserver.transport.connection import IDENTITY_KEPT
    from seatrial.harness.apiserver.transport.inprocess import InProcessTransport
    from seatrial.harness.apiserver.transport.listener import HttpServer
    from seatrial.harness.apiserver.webhooks.calling import HttpsCaller, call_blocking

_MODULES: Final = {
    "access.authentication": ("authenticate",),
    "access.authority": ("Authority",),
    "access.credentials": ("Credentials", "identify", "kubeconfig", "make_credentials", "server_context"),
    "access.identity": ("ADMIN",),
    "access.rbac": ("MASTERS",),
    "assembly": ("build_server",),
    "attempts": ("Answer", "Call"),
    "bootstrap.endpoint": ("publish_endpoint",),
    "bootstrap.identity": ("set_cluster_uid",),
    "loading": ("LoadError", "load_objects"),
    "long_computations": ("SWITCH_INTERVAL", "in_thread"),
    "request.bodies": ("VALUES_LIMIT",),
    "schemas.shipped": ("KOORDINATOR", "shipped"),
    "storage.watch": ("event_line",),
    "transport.connection": ("IDENTITY_KEPT",),
    "transport.inprocess": ("InProcessTransport",),
    "transport.listener": ("HttpServer",),
    "webhooks.calling": ("HttpsCaller", "call_blocking"),
}
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = (
    "ADMIN",
    "IDENTITY_KEPT",
    "KOORDINATOR",
    "MASTERS",
    "SWITCH_INTERVAL",
    "VALUES_LIMIT",
    "Answer",
    "Authority",
    "Call",
    "Credentials",
    "HttpServer",
    "HttpsCaller",
    "InProcessTransport",
    "LoadError",
    "authenticate",
    "build_server",
    "call_blocking",
    "event_line",
    "identify",
    "in_thread",
    "kubeconfig",
    "load_objects",
    "make_credentials",
    "publish_endpoint",
    "server_context",
    "set_cluster_uid",
    "shipped",
)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
