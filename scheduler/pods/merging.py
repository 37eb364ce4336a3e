"""Strategic merge of a patch into a pod (apimachinery strategicpatch): lists of objects merge by key."""

from collections.abc import Mapping
from typing import Any

_KEYS = {  # field → the key by which the objects of its list merge; other lists are replaced
    **dict.fromkeys(
        ("containers", "initContainers", "ephemeralContainers", "volumes", "env", "imagePullSecrets", "resourceClaims"),
        "name",
    ),
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
_DIRECTIVE = "$patch"


def merged(value: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the patch: null removes a field, `$patch: replace` and `$patch: delete` are followed."""
    if patch.get(_DIRECTIVE) == "replace":
        return {name: new for name, new in patch.items() if name != _DIRECTIVE}
    by_name = dict(value)
    for name, new in patch.items():
        old = by_name.get(name)
        if new is None:
            by_name.pop(name, None)
        elif isinstance(new, Mapping):
            if new.get(_DIRECTIVE) == "delete":
                by_name.pop(name, None)
            else:
                by_name[name] = merged(old if isinstance(old, Mapping) else {}, new)
        elif name in _KEYS and isinstance(new, list):
            by_name[name] = _merged_list(old if isinstance(old, list) else [], new, _KEYS[name])
        elif name == "finalizers" and isinstance(new, list) and isinstance(old, list):
            by_name[name] = list(dict.fromkeys((*old, *new)))
        else:
            by_name[name] = new
    return by_name


def _merged_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    """Elements of the patch change those of the same key, or are added at the end."""
    if any(isinstance(new, Mapping) and new.get(_DIRECTIVE) == "replace" for new in patch):
        return [new for new in patch if not (isinstance(new, Mapping) and _DIRECTIVE in new)]
    by_place = {_key(each, key, number): each for number, each in enumerate(old)}
    for number, new in enumerate(patch):
        place = _key(new, key, len(old) + number)
        if isinstance(new, Mapping) and new.get(_DIRECTIVE) == "delete":
            by_place.pop(place, None)
        elif isinstance(new, Mapping):
            below = by_place.get(place)
            by_place[place] = merged(below if isinstance(below, Mapping) else {}, new)
        else:
            by_place[place] = new
    return list(by_place.values())


def _key(element: Any, key: str, number: int) -> object:
    """What identifies an element: its key, or its place if it has none."""
    named = element.get(key) if isinstance(element, Mapping) else None
    return (key, named) if isinstance(named, str | int) else number
