"""The CustomResourceDefinitions that every server starts with."""

from functools import cache

from seatrial.harness.apiserver.bootstrap.objects import put_object
from seatrial.harness.apiserver.controllers.definitions import DEFINITIONS
from seatrial.harness.apiserver.request.options import Options
from seatrial.harness.apiserver.schemas.shipped import shipped
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.storage.store import Object, Store
from seatrial.scheduler.api.clock import SimClock


def store_definitions(store: Store, now: str) -> None:
    """Store the shipped definitions, established, with creation time `now` (RFC 3339)."""
    for body in _established():
        conditions = [{**row, "lastTransitionTime": now} for row in body["status"]["conditions"]]
        put_object(store, DEFINITIONS, {**body, "status": {**body["status"], "conditions": conditions}}, now)


@cache
def _established() -> tuple[Object, ...]:
    """The definitions as a server completes them.

    They have ten thousand values. A process may build hundreds of servers, so they are completed once, and all servers
    share them; this is safe because stored objects are never modified.
    """
    clock = SimClock()
    server = ApiServer(clock)
    resource = server.registry.storage(DEFINITIONS)
    assert resource is not None
    for definition in shipped():
        server.objects.create(resource, "", definition, Options())
    clock.settle()
    return tuple(item.obj for item in server.store.collection(DEFINITIONS).each())
