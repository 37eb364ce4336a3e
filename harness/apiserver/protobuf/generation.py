"""Generates messages.json, which maps the fields of messages to fields in JSON.

Run by hand when Kubernetes has a new release:

    python -m seatrial.harness.apiserver.protobuf.generation VERSION FOLDER...

where the folders are the sources of k8s.io/api, apimachinery, apiextensions-apiserver, kube-aggregator and metrics at
VERSION (Apache-2.0, The Kubernetes Authors). The `.proto` files have the types on the wire; the Go structs have the
names in JSON, and which zero values JSON leaves out: Go writes them to the wire all the same.
"""

import re
import sys
from pathlib import Path
from typing import Any

import orjson

TABLE = Path(__file__).with_name("messages.json")
_SERVED = re.compile(
    r"^k8s\.io\.(api\.\w+\.v\d+|api\.scheduling\.v1(alpha3|beta1)|api\.policy\.v1beta1|apimachinery\.pkg\..+"
    r"|apiextensions_apiserver\..+\.v1|kube_aggregator\..+\.v1|metrics\..+\.metrics\.v1beta1)$"
)
_UNUSED = re.compile(r"\.(admission|imagepolicy|testapigroup|storagemigration|lifecycle)\.|meta\.v1beta1$")
_SCALARS = {"string": "s", "bytes": "b", "int32": "i", "int64": "i", "bool": "t", "double": "d"}
_PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
_MESSAGE = re.compile(r"^message (\w+) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:(optional|repeated) ([\w.]+)|map<string, ?([\w.]+)>) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(  # other tags, such as patchStrategy, may stand between the two
    r'^\t(?:\w+\s+)?([*\[\]\w.]+)\s+`json:"([^"]*)"(?:\s+\w+:"[^"]*")*?\s+protobuf:"\w+,(\d+),[^"]*"`', re.MULTILINE
)
_GROUP = re.compile(r'GroupName\s*=\s*"([^"]*)"')


def table(folders: list[Path], release: str) -> dict[str, Any]:
    """Messages and the packages that hold the kinds of each group version.

    A field is written as NUMBER, then its JSON name and a word of TYPE and flags: the type is s(tring), b(ytes),
    i(nteger), t(ruth), d(ouble) or `.MESSAGE`; the flags before it are `*` (a list), `%` (a map from strings), `?`
    (JSON leaves a zero value out), `&` (a pointer or bytes: the wire has nothing where there is no value; else it has a
    zero value) and `^` (its fields stand in the object around it).
    """
    messages: dict[str, dict[str, list[str]]] = {}
    packages: dict[str, str] = {}
    for path in sorted(file for folder in folders for file in folder.rglob("generated.proto")):
        text = path.read_text()
        match = _PACKAGE.search(text)
        package = match[1] if match else ""
        if not _SERVED.match(package) or _UNUSED.search(package):
            continue
        members = _members(path.parent)
        for name, body in _MESSAGE.findall(text):
            if not (name.endswith("List") and "ListMeta metadata = 1;" in body):  # those are all alike
                messages[f"{package}.{name}"] = dict(_fields(package, body, members.get(name, {})))
        group = _group(path.parent)
        if group is not None:
            version = path.parent.name
            packages[f"{group}/{version}" if group else version] = package
    return {
        "source": f"Kubernetes {release}: k8s.io/api, apimachinery, apiextensions-apiserver, kube-aggregator, metrics",
        "license": "Apache-2.0, The Kubernetes Authors",
        "packages": packages,
        "messages": messages,
    }


def _fields(package: str, body: str, members: dict[str, tuple[str, str]]) -> list[tuple[str, list[str]]]:
    rows = []
    for label, plain, mapped, proto_name, number in _FIELD.findall(body):
        kind = plain or mapped
        word = _SCALARS.get(kind) or "." + (kind[1:] if kind.startswith(".") else f"{package}.{kind}")
        flags = "%" if mapped else "*" if label == "repeated" else ""
        go, json = members.get(number, ("*", proto_name))
        name, *options = json.split(",")
        pointer = go.startswith("*")
        if "inline" in options or not name:
            flags += "^"
        elif not flags and not pointer and ("omitempty" in options or word.startswith(".")):
            flags += "?"
        if pointer or word == "b":
            flags += "&"
        rows.append((number, [name or proto_name, flags + word]))
    return rows


def _members(folder: Path) -> dict[str, dict[str, tuple[str, str]]]:
    """Struct → field number → Go type and JSON tag."""
    by_name: dict[str, dict[str, tuple[str, str]]] = {}
    for path in sorted(folder.glob("*.go")):
        for name, body in _STRUCT.findall(path.read_text()):
            by_name[name] = {number: (go, json) for go, json, number in _MEMBER.findall(body)}
    return by_name


def _group(folder: Path) -> str | None:
    for place in (folder, folder.parent):
        path = place / "register.go"
        match = _GROUP.search(path.read_text()) if path.exists() else None
        if match:
            return match[1]
    return None


def main() -> int:
    """Write the table of a Kubernetes release: the arguments are its name and the folders with `.proto` files."""
    release, *folders = sys.argv[1:]
    TABLE.write_bytes(
        orjson.dumps(table([Path(folder) for folder in folders], release), option=orjson.OPT_SORT_KEYS) + b"\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
