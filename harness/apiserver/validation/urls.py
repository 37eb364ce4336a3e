"""Validation of the URLs of webhooks; follows `ValidateWebhookURL` of apiserver's `pkg/util/webhook`."""

from urllib.parse import urlsplit

from seatrial.harness.apiserver.field_errors import Causes, invalid

_FORM = "; desired format: https://host[/path]"


def check_https_url(url: str, path: str, causes: Causes) -> None:
    """Check that a URL is `https://host[:port][/path]` without user, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        causes.append(invalid(path, url, f"url must be a valid URL: {error}{_FORM}"))
        return
    if parts.scheme != "https":
        causes.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        causes.append(invalid(path, host, f"host must be specified{_FORM}"))
    if at:
        causes.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
