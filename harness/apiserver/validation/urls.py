"""Validation of the URLs of webhooks; follows `ValidateWebhookURL` of apiserver's `pkg/util/webhook`."""

import re

from seatrial.harness.apiserver.field_errors import Causes, invalid, quoted, required

_FORM = "; desired format: https://host[/path]"
_PARTS = re.compile(  # as Go's `url.Parse`; a scheme with another character is none
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://(?:([^/?#]*)@)?([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_ESCAPE_OF_HOST = re.compile(r"%(?!25|[89A-Fa-f][0-9A-Fa-f]).{0,2}", re.DOTALL)
_WRONG_IN_HOST = re.compile(r"[^\x80-\U0010ffffA-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%]")
_WRONG_IN_USER = re.compile(r"[^A-Za-z0-9\-._:~!$&'()*+,;=%@]")
_PORT = re.compile(r":[0-9]*|")


def check_https_url(url: str, path: str, causes: Causes) -> None:
    """Check that a URL is `https://host[:port][/path]` without user, query and fragment."""
    parts = _PARTS.fullmatch(url)
    assert parts is not None
    scheme, user, host, _, query, fragment = parts.groups(default="")
    if problem := _problem(url, parts):
        causes.append(required(path, f"url must be a valid URL: parse {quoted(url)}: {problem}{_FORM}"))
        return
    if scheme.lower() != "https":
        causes.append(invalid(path, scheme.lower(), f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        causes.append(invalid(path, host, f"host must be specified{_FORM}"))
    if parts[2] is not None:
        causes.append(invalid(path, user, "user information is not permitted in the URL"))
    if fragment:
        causes.append(invalid(path, fragment, "fragments are not permitted in the URL"))
    if query:
        causes.append(invalid(path, query, "query parameters are not permitted in the URL"))


def _problem(url: str, parts: re.Match[str]) -> str:
    """Why Go cannot parse the URL; empty if it can."""
    scheme, user, host, rest, _, fragment = parts.groups(default="")
    if _CONTROL.search(url):
        return "net/url: invalid control character in URL"
    if url.startswith(":"):
        return "missing protocol scheme"
    if not scheme and ":" in rest.partition("/")[0]:
        return "first path segment in URL cannot contain colon"
    if _WRONG_IN_USER.search(user):
        return "net/url: invalid userinfo"
    if host.startswith("[") and "]" not in host:
        return "missing ']' in host"
    port = host.rpartition("]")[2] if host.startswith("[") else host[host.rfind(":") :] if ":" in host else ""
    if _PORT.fullmatch(port) is None:
        return f"invalid port {quoted(port)} after host"
    for text, wrong in ((host, _ESCAPE_OF_HOST), (user, _ESCAPE), (rest, _ESCAPE), (fragment, _ESCAPE)):
        if match := wrong.search(text):
            return f"invalid URL escape {quoted(match[0])}"
    if match := _WRONG_IN_HOST.search(host):
        return f"invalid character {quoted(match[0])} in host name"
    return ""
