"""A day of gangs: repeatable, and no gang is bound in part."""

from seatrial.harness.bench.gang_day import gang_day


def test_one_seed_gives_one_digest() -> None:
    first, again, other = (gang_day(20, seed, lambda _: None, hours=2) for seed in (1, 1, 2))
    assert first["digest"] == again["digest"] != other["digest"]
    assert first["bound"] > 0
    assert first["partly_bound"] == 0
