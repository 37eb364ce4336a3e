"""Validation of metadata: names, labels, annotations, owner references and finalizers.

Results for single strings are cached, since a run creates thousands of pods with the same few labels. Follows
`util/validation/validation.go` and `api/validation/objectmeta.go` of k8s.io/apimachinery.
"""

import re
from collections.abc import Callable
from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, forbidden, invalid, required, too_long
from seatrial.harness.apiserver.text_cache import cached

Object = dict[str, Any]
Rule = Callable[[str], tuple[str, ...]]  # a name → upstream's messages on what is wrong with it; empty if valid

MAX_CHECKED = 1024  # characters of a name that are checked and cached; longer ones are invalid anyway
_MAX_ANNOTATIONS_SIZE = 256 * 1024  # bytes, keys and values together
_LABEL, _SUBDOMAIN = 63, 253

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = _DNS_LABEL + r"(\." + _DNS_LABEL + ")*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_is_dns_label = re.compile(_DNS_LABEL).fullmatch
_is_subdomain = re.compile(_DNS_SUBDOMAIN).fullmatch
_is_dns_1035 = re.compile(_DNS_1035).fullmatch
_is_qualified = re.compile(_QUALIFIED).fullmatch
_is_value = re.compile(_VALUE).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch


def _sentence(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_RULE = _sentence(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start and end with an alphanumeric character",
    _DNS_LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_RULE = _sentence(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
    _DNS_SUBDOMAIN,
    "example.com",
)
_1035_RULE = _sentence(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-',"
    " start with an alphabetic character, and end with an alphanumeric character",
    _DNS_1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_RULE = _sentence(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_PREFIXED = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_VALUE_RULE = _sentence(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_RULE = _sentence(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)


def _too_long(text: str, limit: int, unit: str = "characters") -> tuple[str, ...]:
    """Upstream counts bytes, and calls them so in keys and values of labels only."""
    return (f"must be no more than {limit} {unit}",) if len(text.encode()) > limit else ()


@cached()
def dns_label(name: str) -> tuple[str, ...]:
    """A DNS-1123 label: one part of a host name."""
    long = _too_long(name, _LABEL)
    return long if _is_dns_label(name) else (*long, _LABEL_RULE)


@cached()
def subdomain(name: str) -> tuple[str, ...]:
    """A DNS-1123 subdomain: labels joined by dots."""
    long = _too_long(name, _SUBDOMAIN)
    return long if _is_subdomain(name) else (*long, _SUBDOMAIN_RULE)


@cached()
def dns_1035(name: str) -> tuple[str, ...]:
    """A DNS-1035 label: a DNS-1123 label that starts with a letter."""
    long = _too_long(name, _LABEL)
    return long if _is_dns_1035(name) else (*long, _1035_RULE)


@cached()
def path_segment(name: str) -> tuple[str, ...]:
    """A name that can be one segment of a URL path, as RBAC names."""
    if name in {".", ".."}:
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in name)


@cached()
def qualified(key: str) -> tuple[str, ...]:
    """A qualified name (label key, annotation key, finalizer): a name with an optional subdomain prefix and slash."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (f"a qualified name {_QUALIFIED_RULE}{_PREFIXED}",)
    wrong: list[str] = []
    if slash:
        if not prefix:
            wrong.append("prefix part must be non-empty")
        else:
            wrong += (f"prefix part {problem}" for problem in _too_long(prefix, _SUBDOMAIN, "bytes"))
            if not _is_subdomain(prefix):
                wrong.append(f"prefix part {_SUBDOMAIN_RULE}")
    if not name:
        wrong.append("name part must be non-empty")
    wrong += (f"name part {problem}" for problem in _too_long(name, _LABEL, "bytes"))
    if not _is_qualified(name):
        wrong.append(f"name part {_QUALIFIED_RULE}")
    return tuple(wrong)


@cached()
def label_value(value: str) -> tuple[str, ...]:
    """The value of a label: messages for what is wrong, none if it is valid."""
    long = _too_long(value, _LABEL, "bytes")
    return long if _is_value(value) else (*long, _VALUE_RULE)


@cached()
def config_key(key: str) -> tuple[str, ...]:
    """A key in a ConfigMap's or Secret's data, which must be a valid file name."""
    wrong = [*_too_long(key, _SUBDOMAIN)]
    if not _is_config_key(key):
        wrong.append(_CONFIG_KEY_RULE)
    if key == ".":
        wrong.append("must not be '.'")
    elif key == "..":
        wrong.append("must not be '..'")
    elif key.startswith(".."):
        wrong.append("must not start with '..'")
    return tuple(wrong)


@cached()
def port_name(name: str) -> tuple[str, ...]:
    """A container port's name, an IANA service name."""
    wrong = []
    if len(name) > 15:
        wrong.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in name:
        wrong.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        wrong.append("must not begin or end with a hyphen")
    return tuple(wrong)


def check_labels(labels: dict[str, str], path: str, causes: Causes) -> None:
    """Append a cause for each invalid key and value; `path` is the field's path."""
    for key, value in labels.items():
        for problem in qualified(key[:MAX_CHECKED]):
            causes.append(invalid(path, key, problem))
        for problem in label_value(value[:MAX_CHECKED]):
            causes.append(invalid(path, value, problem))


def check_annotations(annotations: dict[str, str], path: str, causes: Causes) -> None:
    """Append a cause for each invalid key, and one if keys and values exceed 256 KiB together."""
    size = 0
    for key, value in annotations.items():
        for problem in qualified(key[:MAX_CHECKED].lower()):
            causes.append(invalid(path, key, problem))
        size += len(key) + len(value)
    # a character is at most four bytes: skip the exact count for small annotations
    if size * 4 > _MAX_ANNOTATIONS_SIZE:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if size > _MAX_ANNOTATIONS_SIZE:
            causes.append(too_long(path, _MAX_ANNOTATIONS_SIZE))


def check_metadata(metadata: Object, rule: Rule, causes: Causes) -> None:
    """Check metadata on create. The name is already generated, and the namespace set from the URL."""
    name = metadata.get("name")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        for problem in rule(name[:MAX_CHECKED]):
            causes.append(invalid("metadata.name", name, problem))
    if generate := metadata.get("generateName"):
        # a suffix is appended after the dash
        start = generate[:MAX_CHECKED]
        for problem in rule(f"{start[:-1]}a" if start.endswith("-") else start):
            causes.append(invalid("metadata.generateName", generate, problem))
    if namespace := metadata.get("namespace"):
        for problem in dns_label(namespace[:MAX_CHECKED]):
            causes.append(invalid("metadata.namespace", namespace, problem))
    _check_rest(metadata, causes)


def check_metadata_update(metadata: Object, old: Object, causes: Causes) -> None:
    """Check metadata on update: identity is immutable, and a terminating object gets no new finalizers."""
    if old.get("deletionTimestamp"):
        kept = set(old.get("finalizers") or ())
        if extra := sorted(set(metadata.get("finalizers") or ()) - kept):
            listed = ", ".join(f'"{name}"' for name in extra)
            causes.append(
                forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted,"
                    f" found new finalizers []string{{{listed}}}",
                )
            )
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        now, before = metadata.get(field), old.get(field)
        if now != before and (now or before):
            causes.append(invalid(f"metadata.{field}", now, "field is immutable"))
    _check_rest(metadata, causes)


def _check_rest(metadata: Object, causes: Causes) -> None:
    if labels := metadata.get("labels"):
        check_labels(labels, "metadata.labels", causes)
    if annotations := metadata.get("annotations"):
        check_annotations(annotations, "metadata.annotations", causes)
    if owners := metadata.get("ownerReferences"):
        _check_owners(owners, causes)
    if finalizers := metadata.get("finalizers"):
        _check_finalizers(finalizers, causes)


def _check_owners(owners: list[Object], causes: Causes) -> None:
    path = "metadata.ownerReferences"
    controller = ""
    for index, owner in enumerate(owners):
        own, version = f"{path}[{index}]", owner.get("apiVersion") or ""
        if version.endswith("/") or version.count("/") > 1:
            causes.append(invalid(f"{own}.apiVersion", version, "must be <group>/<version> or <version>"))
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                causes.append(required(f"{own}.{field}", "must not be empty"))
        if version == "v1" and owner.get("kind") == "Event":
            causes.append(invalid(own, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller") is True:
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                causes.append(
                    invalid(
                        path,
                        owners,
                        'Only one reference can have Controller set to true. Found "true" in references for'
                        f" {controller} and {this}",
                    )
                )
            else:
                controller = this


def check_new_finalizers(metadata: Object, causes: Causes) -> None:
    """Check that finalizers of a new built-in object are qualified or standard ones; custom objects may have any."""
    for number, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in _STANDARD_FINALIZERS and not qualified(name):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"metadata.finalizers[{number}]", name, why))


_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def _check_finalizers(finalizers: list[str], causes: Causes) -> None:
    path = "metadata.finalizers"
    for name in finalizers:
        for problem in qualified(name):
            causes.append(invalid(path, name, problem))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        causes.append(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))


def check_prefixed_path(value: str, path: str, causes: Causes) -> None:
    """Check a path with a domain before it, as in `acme.io/foo`."""
    domain, _, rest = value.partition("/")
    if not value:
        causes.append(required(path))
    elif not domain or not rest:
        causes.append(invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        causes.extend(invalid(path, domain, problem) for problem in subdomain(domain))
        if not re.fullmatch(_HTTP_PATH, rest):
            causes.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_HTTP_PATH}')"))
