"""Hashes of pod templates, equal for equal templates."""

import orjson

from seatrial.harness.apiserver.storage.store import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # upstream's: without vowels, so that no words arise
HASH_LABEL = "pod-template-hash"


def template_hash(template: Object, collisions: int | None = None) -> str:
    """FNV-1a (32 bit) of the template, encoded in upstream's alphabet for names.

    The value differs from kube-controller-manager's, which hashes the text of Go structures.
    """
    text = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    return name_hash(text)


def name_hash(text: bytes) -> str:
    """FNV-1a (32 bit) of the text, encoded in upstream's alphabet for names."""
    value = 0x811C9DC5
    for byte in text:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def without_hash(template: Object) -> Object:
    """The template without the `pod-template-hash` label."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    bare = {name: value for name, value in metadata.items() if name != "labels" and value is not None}
    if labels:
        bare["labels"] = labels
    return {**template, "metadata": bare}


def same_template(left: Object, right: Object) -> bool:
    """Whether two templates are equal apart from the hash label."""
    return without_hash(left) == without_hash(right)
