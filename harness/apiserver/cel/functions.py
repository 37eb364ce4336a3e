"""The functions of CEL in rules of the API server: those of the library, and named formats of strings."""

import re
from collections.abc import Callable
from typing import Final

from celpy.evaluation import base_functions

from seatrial.harness.apiserver.names import dns_1035, dns_label, label_value, qualified, subdomain
from seatrial.harness.apiserver.quantities import exact
from seatrial.scheduler.api.cel.functions import cel, functions, of_kind, predicate
from seatrial.scheduler.api.cel.values import NONE, Optional, Url


class Format:
    """A named string format."""

    def __init__(self, problems: Callable[[str], tuple[str, ...]]) -> None:
        self.problems = problems


def _matching(pattern: str, problem: str) -> Format:
    whole = re.compile(pattern, re.ASCII)
    return Format(lambda text: () if whole.fullmatch(text) else (problem,))


def _prefix(rule: Callable[[str], tuple[str, ...]]) -> Format:
    """A format for name prefixes, to which characters may be appended."""
    return Format(lambda text: rule(f"{text[:-1]}a" if text.endswith("-") else text))


FORMATS: Final = {
    "dns1123Label": Format(dns_label),
    "dns1123Subdomain": Format(subdomain),
    "dns1035Label": Format(dns_1035),
    "qualifiedName": Format(qualified),
    "labelValue": Format(label_value),
    "dns1123LabelPrefix": _prefix(dns_label),
    "dns1123SubdomainPrefix": _prefix(subdomain),
    "dns1035LabelPrefix": _prefix(dns_1035),
    "uri": Format(lambda text: () if predicate(Url.of)(text) else ("invalid URI",)),
    "uuid": _matching(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "does not match the UUID format"),
    "byte": _matching(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", "invalid base64"),
    "date": _matching(r"\d{4}-(0[1-9]|1[0-2])-([0-2]\d|3[01])", "invalid date"),
    "datetime": _matching(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", "invalid datetime"),
}


def _named_format(name: str) -> Optional:
    return Optional((FORMATS[name],)) if name in FORMATS else NONE


def _validate(form: Format, text: str) -> Optional:
    of_kind(Format, form)
    problems = form.problems(str(text))
    return Optional((cel(problems),)) if problems else NONE


FUNCTIONS: Final = functions(
    exact,
    {
        "format.named": _named_format,
        "validate": _validate,
        **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
    },
)
NAMESPACES: Final = frozenset(name.partition(".")[0] for name in FUNCTIONS if "." in name)
KNOWN: Final = frozenset({*FUNCTIONS, *base_functions, "has", "dyn"})
AS_FUNCTIONS: Final = frozenset(  # `sign(x)`; other functions are those of a value, as `x.isInteger()`
    {*("isCIDR", "isIP", "isQuantity", "isSemver", "isURL", "cidr", "quantity", "semver", "sign", "url")}
    | {*("bool", "bytes", "double", "duration", "dyn", "has", "int", "string", "timestamp", "type", "uint")}
)
IN_BOTH_WAYS: Final = frozenset({"ip", "matches", "size"})
