"""A whole API server: the store with its rules, the controllers, and what every cluster has from the start."""

from harness.apiserver.admission import SYSTEM_CLASSES
from harness.apiserver.controllers.budgets import Budgets
from harness.apiserver.controllers.garbage import GarbageCollector
from harness.apiserver.controllers.namespaces import Namespaces
from harness.apiserver.controllers.nodes import Nodes
from harness.apiserver.definitions import DEFINITIONS, shipped
from harness.apiserver.objects import Options
from harness.apiserver.rbac import first_roles
from harness.apiserver.server import ApiServer
from harness.apiserver.store import Object
from scheduler.api.clock import Clock


def build_server(clock: Clock, *, seed: int = 0, history: int | None = None, root_ca: str = "") -> ApiServer:
    """A server with controllers, the first namespaces, the system's priority classes and the shipped CRDs."""
    server = ApiServer(clock, seed=seed, history=history)
    GarbageCollector(server.objects, server.registry)
    Budgets(server.objects)
    Nodes(server.objects, server.registry)
    Namespaces(server.objects, server.registry, root_ca).create_first()
    for name, value in SYSTEM_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value, "description": "Used by the system's own pods."}
        _create(server, ("scheduling.k8s.io", "priorityclasses"), body)
    for definition in shipped():
        _create(server, DEFINITIONS, definition)
    for role in first_roles():
        _create(server, ("rbac.authorization.k8s.io", f"{role['kind'].lower()}s"), role)
    return server


def _create(server: ApiServer, collection: tuple[str, str], body: Object) -> None:
    resource = server.registry.storage(collection)
    assert resource is not None  # noqa: S101
    server.objects.create(resource, "", body, Options())
