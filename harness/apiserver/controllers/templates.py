"""Names for pod templates: a short hash that is the same for equal templates."""

import orjson

from harness.apiserver.storage.store import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # upstream's: no vowels, no words
HASH_LABEL = "pod-template-hash"


def template_hash(template: Object, collisions: int | None = None) -> str:
    """FNV-1a (32 bit) of the template, spelled in an alphabet that is safe in names.

    Not the very hash that kube-controller-manager computes, which depends on how Go prints its structures.
    """
    text = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    value = 0x811C9DC5
    for byte in text:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def without_hash(template: Object) -> Object:
    """The template as its author wrote it."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    bare = {name: value for name, value in metadata.items() if name != "labels" and value is not None}
    if labels:
        bare["labels"] = labels
    return {**template, "metadata": bare}


def same_template(one: Object, other: Object) -> bool:
    """Whether both make the same pods."""
    return without_hash(one) == without_hash(other)
