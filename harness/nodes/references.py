"""Reads the ConfigMaps, Secrets and tokens that a pod's variables and volumes refer to, before its containers start.

They are read once for each pod. Kubelet updates the files later; this module does not.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import orjson

from seatrial.harness.nodes.pod_parts import TokenSource
from seatrial.harness.nodes.pods import BoundPod
from seatrial.scheduler.api.transport import JSON, Request, Response, Transport
from seatrial.scheduler.api.wire import Wire, decode_as

Data = Mapping[str, bytes]
CONFIG_MAP, SECRET, TOKEN = "configmap", "secret", "token"

Name = tuple[str, str]  # kind and name


class _Stored(Wire, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, str] = msgspec.field(default_factory=dict)


class _TokenStatus(Wire, frozen=True):
    token: str = ""


class _TokenRequest(Wire, frozen=True):
    status: _TokenStatus = _TokenStatus()


@dataclass(slots=True)
class Objects:
    """The content of objects by kind and name, and kubelet's messages about missing ones that are not optional."""

    contents: dict[Name, Data] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


class References:
    """Reads the objects that pods refer to."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def gather(self, pod: BoundPod, done: Callable[[Objects], object]) -> None:
        """Read all objects that the pod refers to and pass them to `done`; at once if there are none."""
        amounts = wanted_of(pod)
        objects = Objects()
        if not amounts:
            done(objects)
            return
        left = set(amounts)

        def answered(name: Name, response: Response) -> None:
            left.discard(name)
            if response.ok:
                objects.contents[name] = _data(name, response.body)
            elif not amounts[name]:
                why = "not found" if response.code == 404 else f"cannot be read: {response.code}"
                objects.missing.append(f'{name[0]} "{name[1]}" {why}')
            if not left:
                done(objects)

        for name in amounts:
            self._transport.send(_request(pod, name), partial(answered, name))


def wanted_of(pod: BoundPod) -> dict[Name, bool]:
    """Kind and name of each object, and whether all references to it are optional."""
    optionals: dict[Name, bool] = {}
    for kind, name, optional in _named(pod):
        optionals[kind, name] = optional and optionals.get((kind, name), True)
    return optionals


def token_name(source: TokenSource) -> str:
    """The name of a token among the objects: audience and lifetime."""
    return f"{source.audience}/{source.expiration_seconds}"


def _named(pod: BoundPod) -> Iterator[tuple[str, str, bool]]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for source in container.env_from:
            for kind, ref in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
                if ref is not None:
                    yield kind, ref.name, ref.optional
        for variable in container.env:
            value = variable.value_from
            for kind, key in ((CONFIG_MAP, value.config_map_key_ref), (SECRET, value.secret_key_ref)) if value else ():
                if key is not None:
                    yield kind, key.name, key.optional
    for part in (part for volume in pod.spec.volumes for part in volume.parts()):
        if part.config_map is not None:
            yield CONFIG_MAP, part.config_map.name, part.config_map.optional
        if part.secret is not None:
            yield SECRET, part.secret.called, part.secret.optional
        if part.service_account_token is not None:
            yield TOKEN, token_name(part.service_account_token), False


def _request(pod: BoundPod, name: Name) -> Request:
    kind, what = name
    home = f"/api/v1/namespaces/{pod.metadata.namespace}"
    if kind != TOKEN:
        return Request("GET", f"{home}/{kind}s/{what}")
    audience, _, seconds = what.rpartition("/")
    spec = {
        "audiences": [audience] if audience else [],
        "expirationSeconds": int(seconds),
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid},
    }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account = pod.spec.service_account_name or "default"
    return Request("POST", f"{home}/serviceaccounts/{account}/token", orjson.dumps(body), JSON)


def _data(name: Name, body: bytes) -> Data:
    if name[0] == TOKEN:
        return {"token": decode_as(body, _TokenRequest).status.token.encode()}
    stored = decode_as(body, _Stored)
    if name[0] == SECRET:
        return {key: base64.b64decode(value) for key, value in stored.data.items()}
    binary = {key: base64.b64decode(value) for key, value in stored.binary_data.items()}
    return {**{key: value.encode() for key, value in stored.data.items()}, **binary}
