"""URLs of webhooks: the table was compared with kube-apiserver 1.34.2."""

import pytest

from seatrial.harness.apiserver.field_errors import Causes
from seatrial.harness.apiserver.validation.urls import check_https_url

PLACE = "webhooks[0].clientConfig.url"


@pytest.mark.parametrize(
    "url",
    [
        "https://h/p",
        "https://h:1/p",
        "https://h:99999/",
        "https://h:/",
        "HTTPS://h/",
        "https://[::1]:5/",
        "https://h/a b",
        "https://h/%20",
        "https://\u00e9/",
        "https://h/<>",
        "https://h<x/",
        "https://a_b/",
        "https://h/\\",
        "https://[fe80::1%25eth0]/",
        "https://h/a:b",
        "https://h/p?",
        "https://h/p#",
        "https://169.254.169.254/",
    ],
)
def test_urls_that_can_be_called(url: str) -> None:
    causes: Causes = []
    check_https_url(url, PLACE, causes)
    assert not causes


@pytest.mark.parametrize(
    ("url", "reason", "message"),
    [
        ("https://h:x/p", "Required", 'invalid port ":x" after host'),
        ("https://h:-1/", "Required", 'invalid port ":-1" after host'),
        ("https://[::1]x/", "Required", 'invalid port "x" after host'),
        ("https://[::1", "Required", "missing ']' in host"),
        ("https://h/\r\nX: y", "Required", "invalid control character"),
        ("https://h/\0", "Required", "invalid control character"),
        ("https://h a/", "Required", 'invalid character " " in host name'),
        ("https://h\\x/", "Required", "in host name"),
        ("https://h/%zz", "Required", 'invalid URL escape "%zz"'),
        ("https://h/%", "Required", 'invalid URL escape "%"'),
        ("https://h%20x/", "Required", 'invalid URL escape "%20"'),
        ("https://[fe80::1%eth0]/", "Required", 'invalid URL escape "%et"'),
        ("https://user^x@h/", "Required", "invalid userinfo"),
        (" https://h/", "Required", "first path segment in URL cannot contain colon"),
        (":foo", "Required", "missing protocol scheme"),
        ("http://h/", "Invalid", "'https' is the only allowed URL scheme"),
        ("https:h", "Invalid", "host must be specified"),
        ("https://u@h/", "Invalid", "user information is not permitted"),
        ("https://h/?a=b", "Invalid", "query parameters are not permitted"),
        ("https://h/#f", "Invalid", "fragments are not permitted"),
    ],
)
def test_urls_that_cannot(url: str, reason: str, message: str) -> None:
    causes: Causes = []
    check_https_url(url, PLACE, causes)
    assert [cause.reason for cause in causes] == [f"FieldValue{reason}"]
    assert message in causes[0].message
