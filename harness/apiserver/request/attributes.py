"""What a request wants to do, from its method and path alone: access is checked before anything else is looked at.

Follows `RequestInfoFactory.NewRequestInfo` in `apiserver/pkg/endpoints/request`, but for the name in a field selector.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from seatrial.harness.apiserver.access.rbac import Act
from seatrial.harness.apiserver.storage.paging import flag

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS: Final = {"get": "list", "delete": "deletecollection"}
_OLD_VERBS: Final = frozenset({"watch", "proxy"})  # in the path, before the resource
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


def act_of(method: str, path: str, parts: Sequence[str], query: Mapping[str, str]) -> Act:
    """What RBAC has to allow. `parts` are those of the path, unescaped."""
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else ()
    if not rest:
        return Act(method.lower(), path=path)
    verb = _VERBS.get(method, "")
    if rest[0] in _OLD_VERBS and len(rest) > 1:
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    resource, name, subresource = [*rest, "", "", ""][:3]
    if not name:
        verb = "watch" if verb == "get" and flag(query, "watch") else _COLLECTION_VERBS.get(verb, verb)
    return Act(verb, "" if parts[0] == "api" else parts[1], resource, subresource, namespace, name)
