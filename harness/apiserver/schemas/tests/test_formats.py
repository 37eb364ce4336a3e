"""Formats of strings in custom resources. The expected answers are those of kube-apiserver 1.34.2."""

import pytest

from seatrial.harness.apiserver.schemas.formats import conforms


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        pytest.param(
            "date-time",
            [
                "2026-01-01T00:00:00Z",
                "0000-01-01t00:00:00z",
                "2026-01-01T00:00:00+99:99",
                "2026-01-01T00:00:00x5Z",
                "2026-01-01T00:00:00Ztext",
            ],
            [
                "",
                "2026-01-01",
                "2026-99-01T00:00:00Z",
                "2026-02-30T00:00:00Z",
                "2026-01-01T24:00:00Z",
                "2026-01-01T00:00:60Z",
                "2026-01-01T00:00:00",
            ],
            id="date-time",
        ),
        pytest.param("datetime", ["2026-01-01T00:00:00Z"], ["x"], id="hyphens-do-not-count"),
        pytest.param("date", ["2024-02-29"], ["", "2026-02-30", "2026-1-1"], id="date"),
        pytest.param(
            "duration",
            ["1h", "-1.5h", "0", "3 days", "1 h", "1hour2min"],
            ["", "x", "1", "5 fortnights"],
            id="duration",
        ),
        pytest.param("uri", ["http://a", "/x", "mailto:x@y"], ["", "x", "http://a:x", "http://a b", "a:\n"], id="uri"),
        pytest.param("hostname", ["a", "a-b", "a.bc", "ä.de"], ["", "a-b-c", "a.b", "a_b", "a" * 64], id="hostname"),
        pytest.param("ipv4", ["01.2.3.4", "::ffff:1.2.3.4"], ["", "1.2.3", "::1"], id="ipv4"),
        pytest.param("ipv6", ["::1"], ["fe80::1%eth0", "1.2.3.4"], id="ipv6"),
        pytest.param("cidr", ["1.2.3.4/8", "::/0"], ["1.2.3.4", "1.2.3.4/33", "1.2.3.4/255.0.0.0"], id="cidr"),
        pytest.param("mac", ["01:23:45:67:89:ab", "0123.4567.89ab"], ["01:23-45:67:89:ab", "01:23"], id="mac"),
        pytest.param("byte", ["YQ=="], ["", "YQ"], id="byte"),
        pytest.param("uuid4", ["00000000-0000-4000-8000-000000000000"], ["0" * 32], id="uuid4"),
        pytest.param("rgbcolor", ["rgb( 1 , 2 , 3 )"], ["rgb(256,0,0)"], id="rgbcolor"),
        pytest.param("other", ["", "x"], [], id="unknown"),
    ],
)
def test_a_text_has_the_format(name: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not conforms(name, text)] == []
    assert [text for text in wrong if conforms(name, text)] == []
