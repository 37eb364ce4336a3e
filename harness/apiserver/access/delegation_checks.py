"""Checks of writes that grant rights: roles and bindings, and decisions on certificate requests."""

from typing import Final

from seatrial.harness.apiserver.access import escalation, signing
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import Access
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Object

GRANTING_GROUPS: Final = frozenset({escalation.GROUP, signing.GROUP})  # API groups with such kinds


def check_delegation(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """Check that the writer may grant what `body` grants.

    Raises:
        ApiStatusError: 403, the writer lacks the permission.
    """
    if resource.group == escalation.GROUP:
        escalation.check_grant(access, by, resource, body, old)
    elif resource.plural == "certificatesigningrequests":
        signing.check_signing_rights(access, by, resource, body, old)
