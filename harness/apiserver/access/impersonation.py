"""Impersonation: a client that RBAC allows it acts as another user (headers `Impersonate-*`)."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import ANONYMOUS, Identity
from seatrial.harness.apiserver.access.rbac import Access, Act
from seatrial.harness.apiserver.access.tokens import ACCOUNT_PREFIX, account_groups

_AUTHENTICATION: Final = "authentication.k8s.io"
_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
VALUE_SEPARATOR: Final = "\n"  # between the values of a repeated header, which cannot have it
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


def impersonates(headers: Mapping[str, str]) -> bool:
    """Whether the headers ask to act as another user."""
    return any(name.startswith("impersonate-") for name in headers)


def impersonated(headers: Mapping[str, str], by: Identity, access: Access) -> Identity:
    """The identity that the client asks to act as.

    Raises:
        ApiStatusError: 400, no user is named; 403, RBAC does not allow it.
    """
    name = headers.get(_USER, "")
    groups = tuple(group for group in headers.get(_GROUP, "").split(VALUE_SEPARATOR) if group)
    uid = headers.get(_UID, "")
    extra = tuple(
        (unquote(header.removeprefix(_EXTRA)), tuple(value.split(VALUE_SEPARATOR)))
        for header, value in headers.items()
        if header.startswith(_EXTRA)
    )
    if not name:
        raise errors.bad_request("impersonation: expected Impersonate-User, found groups, a UID or extra values only")
    namespace, _, account = name.removeprefix(ACCOUNT_PREFIX).partition(":")
    if name.startswith(ACCOUNT_PREFIX) and namespace and account:
        access.check(by, Act("impersonate", resource="serviceaccounts", namespace=namespace, name=account))
        groups = groups or account_groups(namespace)
    else:
        access.check(by, Act("impersonate", resource="users", name=name))
    for group in groups if headers.get(_GROUP) else ():
        access.check(by, Act("impersonate", resource="groups", name=group))
    if uid:
        access.check(by, Act("impersonate", _AUTHENTICATION, "uids", name=uid))
    for key, values in extra:
        for value in values:
            access.check(by, Act("impersonate", _AUTHENTICATION, "userextras", key, name=value))
    if name == ANONYMOUS.name:
        return Identity(name, (*groups, *(() if _UNAUTHENTICATED in groups else (_UNAUTHENTICATED,))), uid, extra)
    return Identity(name, tuple(dict.fromkeys((*groups, _AUTHENTICATED))), uid, extra)
