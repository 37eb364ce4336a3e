"""Hashes of templates."""

from seatrial.harness.apiserver.controllers.templates import same_template, template_hash
from seatrial.harness.apiserver.controllers.tests.bench import template


def test_the_hash_ignores_the_order_of_fields() -> None:
    one = template({"a": "1", "b": "2"})
    other = {"spec": one["spec"], "metadata": {"labels": {"b": "2", "a": "1"}}}
    assert template_hash(one) == template_hash(other)
    assert template_hash(one) != template_hash(template({"a": "1"}))
    assert set(template_hash(one)) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_a_collision_count_changes_the_hash() -> None:
    one = template({"a": "1"})
    assert len({template_hash(one), template_hash(one, 0), template_hash(one, 1)}) == 3


def test_the_hash_label_is_ignored() -> None:
    plain = template({"app": "x"})
    assert same_template(plain, template({"app": "x", "pod-template-hash": "abc"}))
    assert not same_template(plain, template({"app": "y"}))
