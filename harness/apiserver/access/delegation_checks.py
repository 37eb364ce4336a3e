"""What a writer may say only if he himself has it: rights in roles and bindings, and the word on certificates."""

from typing import Final

from harness.apiserver.access import escalation, signing
from harness.apiserver.access.identity import Identity
from harness.apiserver.access.rbac import Access
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.storage.store import Object

VOUCHED: Final = frozenset({escalation.GROUP, signing.GROUP})  # groups with such kinds


def vouch(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """
    Raises:
        ApiStatusError: 403, the writer may not say this.
    """
    if resource.group == escalation.GROUP:
        escalation.check_grant(access, by, resource, body, old)
    elif resource.plural == "certificatesigningrequests":
        signing.vouch_for(access, by, resource, body, old)
