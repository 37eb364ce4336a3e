"""Writes `recorded.json` from the OpenAPI v2 document of a running kube-apiserver.

`kubectl proxy --port=8001 & python -m seatrial.harness.apiserver.discovery.record_definitions http://127.0.0.1:8001`.
The packaged definitions (`schemas`) come from
upstream's published document, which has neither enumerations nor their texts. Upstream's texts: Apache-2.0, The
Kubernetes Authors.
"""

import sys
from typing import Any, Final
from urllib.request import urlopen

import orjson

from seatrial.harness.apiserver.discovery.enumerations import ENUM_TEXT, RECORDED

Object = dict[str, Any]

# The parameters are the same for all kinds; those of Services stand for all.
_COLLECTION: Final = "/api/v1/namespaces/{namespace}/services"
_OPERATIONS: Final = {  # action: path, method
    "list": (_COLLECTION, "get"),
    "post": (_COLLECTION, "post"),
    "deletecollection": (_COLLECTION, "delete"),
    "put": (_COLLECTION + "/{name}", "put"),
    "patch": (_COLLECTION + "/{name}", "patch"),
    "delete": (_COLLECTION + "/{name}", "delete"),
}


def main() -> int:
    """Write the kinds of the server at the address that is the first argument."""
    with urlopen(f"{sys.argv[1]}/openapi/v2") as answer:  # noqa: S310 an address that the caller gives
        results = extracted(orjson.loads(answer.read()))
    RECORDED.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return 0


def extracted(document: Object) -> Object:
    """The enumerations of all definitions, and the query parameters of each action, each once by its name."""
    enums: Object = {}
    for name, schema in document["definitions"].items():
        for field, result in (schema.get("properties") or {}).items():
            values = result.get("enum") or (result.get("items") or {}).get("enum")
            if values:
                text = result.get("description", "").partition(ENUM_TEXT)
                enums.setdefault(name, {})[field] = {"values": values, "text": text[1] + text[2]}
    parameters: Object = {}
    actions: dict[str, list[str]] = {}
    for action, (path, method) in _OPERATIONS.items():
        names = actions[action] = []
        for value in document["paths"][path][method]["parameters"]:
            reference = value.get("$ref")
            parameter = document["parameters"][reference.rpartition("/")[2]] if reference else value
            if parameter["in"] == "query":
                name = _free_name(parameters, parameter)
                parameters[name] = parameter
                names.append(name)
    return {"enums": enums, "parameters": parameters, "actions": actions}


def _free_name(parameters: Object, parameter: Object) -> str:
    """The parameter's name, with a number where parameters with other texts have it already."""
    name, number = parameter["name"], 1
    while parameters.get(name, parameter) != parameter:
        number += 1
        name = f"{parameter['name']}-{number}"
    return str(name)


if __name__ == "__main__":
    sys.exit(main())
