"""Where a kubeconfig leads, and with which credentials; read by the official client's rules."""

import shutil
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml

from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.private_files import private_folder, write_private
from seatrial.scheduler.api.yaml_files import load_yaml

_FILES = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}


@dataclass(frozen=True, slots=True)
class Access:
    """A way to an API server."""

    url: str
    tls: ssl.SSLContext | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def pool(self, *, connections: int) -> urllib3.PoolManager:
        return urllib3.PoolManager(num_pools=2, maxsize=connections, ssl_context=self.tls)


def load_access(path: Path) -> Access:
    """Read a kubeconfig by the official client's rules.

    The official client writes the certificates and keys of a kubeconfig to files. These are in a private folder that is
    removed before this function returns; the TLS context holds their content.

    Raises:
        UsageError: the file is missing, or does not describe a server and its credentials.
    """
    content_of(path)
    with private_folder() as folder, _no_files_kept(folder):
        return _load(path, folder)


def _load(path: Path, folder: Path) -> Access:
    from kubernetes import config  # a quarter of a second: only who connects pays it
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        config.load_kube_config(config_file=str(path), client_configuration=configuration, temp_file_path=str(folder))
    except config.ConfigException as error:
        raise UsageError(f"kubeconfig {path}: {error}") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # raised for wrong shapes
        raise UsageError(f"kubeconfig {path}: cannot be read as a kubeconfig: {error}") from error
    url: str = configuration.host.rstrip("/")
    tls = None
    if url.startswith("https:"):
        try:
            tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            if not configuration.verify_ssl:
                tls.check_hostname = False
                tls.verify_mode = ssl.CERT_NONE
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise UsageError(f"kubeconfig {path}: its certificates cannot be used: {error}") from error
    elif not url.startswith("http:"):
        raise UsageError(f"kubeconfig {path}: server: expected http:// or https://, found {url!r}")
    # The official client names the key `BearerToken` since version 36.
    authorization = configuration.get_api_key_with_prefix("authorization") or configuration.get_api_key_with_prefix(
        "BearerToken"
    )
    return Access(url, tls, {"authorization": authorization} if authorization else {})


@contextmanager
def _no_files_kept(folder: Path) -> Iterator[None]:
    """Make the official client forget its files in `folder`: it would reuse them for a kubeconfig of equal content."""
    try:
        yield
    finally:
        from kubernetes.config import kube_config

        known = kube_config._temp_files  # noqa: SLF001 there is no public way to clear this cache
        for content in [content for content, name in known.items() if Path(name).parent == folder]:
            del known[content]


def content_of(path: Path) -> dict[str, Any]:
    """A kubeconfig as it is written.

    Raises:
        UsageError: no such file, or it is no YAML object.
    """
    if not path.is_file():
        raise UsageError(f"kubeconfig {path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    try:
        content = load_yaml(path.read_bytes())
    except OSError as error:
        raise UsageError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"kubeconfig {path}: expected YAML: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"kubeconfig {path}: expected a YAML object of kind Config, found {_kind(content)}")
    return content


def with_context(kubeconfig: Path, context: str, target: Path) -> Path:
    """Write a copy of a kubeconfig with that current context and absolute paths; an empty name keeps the file's own.

    Raises:
        UsageError: the file cannot be used or has no such context.
    """
    content = content_of(kubeconfig)
    known = [entry.get("name") for entry in content.get("contexts") or () if isinstance(entry, dict)]
    if context and context not in known:
        there = ", ".join(map(str, known)) or "none"
        raise UsageError(f"--context {context}: kubeconfig {kubeconfig} has no such context; it has: {there}")
    if context:
        content["current-context"] = context
    _check_current(content, kubeconfig)
    for section, fields in _FILES.items():
        for row in content.get(section) or ():
            inner = row.get(section[:-1]) if isinstance(row, dict) else None
            for name in fields:
                if isinstance(inner, dict) and inner.get(name):
                    inner[name] = str((kubeconfig.resolve().parent / inner[name]).resolve())
    write_private(target, yaml.safe_dump(content).encode())
    return target


def entry_named(content: Mapping[str, Any], section: str, name: object) -> dict[str, Any]:
    """The content of a named entry of `contexts`, `clusters` or `users`; empty if there is none."""
    for row in content.get(section) or ():
        if isinstance(row, dict) and row.get("name") == name:
            return row.get(section[:-1]) or {}
    return {}


def _check_current(content: Mapping[str, Any], kubeconfig: Path) -> None:
    """Check that the current context, its cluster, its user and their files exist; the official client names a copy.

    Raises:
        UsageError: one is missing.
    """

    def expect(section: str, name: object, where: str) -> dict[str, Any]:
        known = [str(row.get("name")) for row in content.get(section) or () if isinstance(row, dict)]
        if str(name) not in known:
            text = "none" if name is None else repr(name)
            raise UsageError(
                f"kubeconfig {kubeconfig}: {where}: expected one of its {section} ({', '.join(known) or 'none'}), found"
                f" {text}{'; give one with --context' if section == 'contexts' else ''}"
            )
        return entry_named(content, section, name)

    current = content.get("current-context") or None
    context = expect("contexts", current, "current-context")
    if not context:
        return  # the official client says what it lacks
    for section in ("clusters", "users"):
        name = context.get(section[:-1])
        entry = expect(section, name, f"context {current!r}: {section[:-1]}")
        for field_name in _FILES[section]:
            file = entry.get(field_name)
            if file and not (kubeconfig.resolve().parent / str(file)).is_file():
                raise UsageError(
                    f"kubeconfig {kubeconfig}: {section[:-1]} {name!r}: {field_name}: expected a file, found none at"
                    f" {file}"
                )
        program = str((entry.get("exec") or {}).get("command") or "")
        here = (
            (kubeconfig.resolve().parent / program).is_file() if "/" in program else shutil.which(program) is not None
        )
        if program and not here:
            raise UsageError(
                f"kubeconfig {kubeconfig}: user {name!r}: exec: expected a program, found no {program!r}; install it,"
                " or use a kubeconfig with a token"
            )


def _kind(entry: object) -> str:
    return "nothing" if entry is None else f"a {type(entry).__name__}"


def is_ours(path: Path) -> bool:
    """Whether a cluster of this program wrote the file; only such a file may be written over and removed."""
    try:
        content = content_of(path)
    except UsageError:
        return False
    users = content.get("users")
    names = [user.get("name") for user in users if isinstance(user, dict)] if isinstance(users, list) else []
    return content.get("current-context") == "seatrial" and names == ["seatrial-admin"]
