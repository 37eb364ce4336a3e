"""The discovery documents: versions, groups and resources, aggregated and not."""

import hashlib
from typing import Any

import orjson

from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.discovery.versions import preferred

VERSION = "v1.35.0"
Object = dict[str, Any]


def version() -> Object:
    """The document at /version."""
    _, major, minor = VERSION.replace("v", "v.").split(".")[:3]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{VERSION}+seatrial",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "CPython",
        "platform": "linux/amd64",
    }


class Discovery:
    """Builds discovery documents from the registry; caches the aggregated ones until the registry changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[int, bytes, str]] = {}

    def core_versions(self) -> Object:
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        }

    def groups(self) -> Object:
        groups = [self._group(group, versions) for group, versions in self._registry.groups().items() if group]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Object | None:
        versions = self._registry.groups().get(name)
        if not versions or not name:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name, versions)}

    @staticmethod
    def _group(name: str, versions: list[str]) -> Object:
        rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in preferred(versions)]
        return {"name": name, "versions": rows, "preferredVersion": rows[0]}

    def resources(self, group: str, version: str) -> Object | None:
        """APIResourceList of a group version; None if there is none."""
        matches = [row for row in self._registry if row.group == group and row.version == version]
        if not matches:
            return None
        rows: list[Object] = []
        for row in sorted(matches, key=lambda row: row.plural):
            rows.append(_listed(row))
            rows += [_listed_subresource(row, name) for name in sorted(row.subresources)]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": rows,
        }

    def aggregated(self, *, core: bool) -> tuple[bytes, str]:
        """The APIGroupDiscoveryList v2 as JSON, and its ETag."""
        name = "core" if core else "groups"
        made = self._made.get(name)
        if made is None or made[0] != self._registry.generation:
            data = orjson.dumps(self._aggregated(core=core))
            made = (self._registry.generation, data, f'"{hashlib.sha256(data).hexdigest().upper()}"')
            self._made[name] = made
        return made[1], made[2]

    def _aggregated(self, *, core: bool) -> Object:
        items = []
        for group, versions in self._registry.groups().items():
            if bool(group) is core:
                continue
            rows = [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [
                        _aggregated(row)
                        for row in sorted(self._registry, key=lambda row: row.plural)
                        if row.group == group and row.version == version
                    ],
                }
                for version in preferred(versions)
            ]
            items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": rows})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _listed(row: Resource) -> Object:
    listed: Object = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        listed["shortNames"] = list(row.short_names)
    if row.categories:
        listed["categories"] = list(row.categories)
    if "list" in row.verbs:
        listed["storageVersionHash"] = hashlib.sha256(f"{row.group}/{row.plural}".encode()).hexdigest()[:12]
    return listed


_SUBRESOURCES: dict[str, tuple[str, str, str, list[str]]] = {  # name → group, version, kind, verbs
    "status": ("", "", "", ["get", "patch", "update"]),
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "log": ("", "v1", "Pod", ["get"]),
    "exec": ("", "v1", "PodExecOptions", ["create", "get"]),
    "attach": ("", "v1", "PodAttachOptions", ["create", "get"]),
    "portforward": ("", "v1", "PodPortForwardOptions", ["create", "get"]),
    "ephemeralcontainers": ("", "v1", "Pod", ["get", "patch", "update"]),
    "resize": ("", "v1", "Pod", ["get", "patch", "update"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "finalize": ("", "v1", "Namespace", ["update"]),
    "approval": ("", "", "", ["get", "patch", "update"]),
}


def _listed_subresource(row: Resource, name: str) -> Object:
    group, version, kind, verbs = _SUBRESOURCES[name]
    listed: Object = {
        "name": f"{row.plural}/{name}",
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": kind or row.kind,
        "verbs": verbs,
    }
    if kind and (group, version) != (row.group, row.version):
        listed["group"], listed["version"] = group, version
    return listed


def _aggregated(row: Resource) -> Object:
    short_names: Object = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        short_names["shortNames"] = list(row.short_names)
    if row.categories:
        short_names["categories"] = list(row.categories)
    if row.subresources:
        short_names["subresources"] = [_aggregated_subresource(row, name) for name in sorted(row.subresources)]
    return short_names


def _aggregated_subresource(row: Resource, name: str) -> Object:
    group, version, kind, verbs = _SUBRESOURCES[name]
    return {
        "subresource": name,
        "responseKind": {
            "group": group if kind else row.group,
            "version": version or row.version,
            "kind": kind or row.kind,
        },
        "verbs": verbs,
    }
