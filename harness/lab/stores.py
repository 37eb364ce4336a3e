"""Where a lab's ledger is kept: in a file of one machine, or in a Lease of a cluster. The whole ledger is replaced, if
it was not replaced since it was read.

Each store has one clock for all its users, so clocks of clients are not compared:
- a file: the machine's clock since boot, which no time service sets; a file that another machine wrote is refused;
- a cluster: the API server's, from the header `date` of its responses.
"""

import fcntl
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import orjson
import urllib3

from seatrial.harness.clusters.kubeconfig import Access, load_access, with_context
from seatrial.harness.lab.errors import LabError
from seatrial.harness.lab.inventory import Inventory, Leases
from seatrial.harness.lab.ledger import Ledger, Moment
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.private_files import private_folder

LABEL = "seatrial.dev/lab"
ANNOTATION = "seatrial.dev/ledger"
ANSWER_WITHIN = 5.0  # seconds; a heartbeat has several tries within a lease's ttl
TRIES = 200  # of a change while others change the ledger too


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The ledger as it was read, and when by the store's clock."""

    ledger: Ledger
    at: Moment
    version: str


class Store(ABC):
    """Keeps one ledger."""

    @abstractmethod
    def read(self) -> Snapshot:
        """
        Raises:
            LabError: it cannot be read now.
        """

    @abstractmethod
    def write(self, ledger: Ledger, before: Snapshot) -> bool:
        """Replace the ledger; False if another process replaced it after `before` was read.

        Raises:
            LabError: it cannot be written, or it is not known whether it was.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    def change(self, change: Callable[[Ledger, Moment], Ledger]) -> Snapshot:
        """Apply a change and return the ledger as it is then. `change` may be called more than once.

        Raises:
            LabError: the store cannot be used.
        """
        for _ in range(TRIES):
            before = self.read()
            ledger = change(before.ledger, before.at)
            if ledger == before.ledger or self.write(ledger, before):
                return Snapshot(ledger, before.at, before.version)
        raise LabError(f"the lab's ledger was changed by others {TRIES} times in a row; try again")


def open_store(inventory: Inventory) -> Store:
    """
    Raises:
        UsageError: the kubeconfig cannot be used.
        LabError: the cluster refuses.
    """
    if inventory.leases.file:
        return FileStore(Path(inventory.leases.file), inventory.lab)
    return LeaseStore(_access(inventory.leases), inventory.leases.namespace, inventory.lab)


def _access(leases: Leases) -> Access:
    with private_folder() as folder:
        return load_access(with_context(Path(leases.kubeconfig), leases.context, folder / "kubeconfig"))


class _Content(msgspec.Struct, frozen=True):
    """A ledger file: also the boot and the machine whose clock its times are of."""

    revision: int
    boot: str
    machine: str
    ledger: Ledger


class FileStore(Store):
    """A JSON file, beside a file that is locked (`flock`) while it is replaced; for the processes of one machine."""

    def __init__(self, path: Path, lab: str) -> None:
        self._path, self._lab = path, lab
        self._boot = _line(Path("/proc/sys/kernel/random/boot_id"))
        self._machine = _line(Path("/etc/machine-id"))

    def read(self) -> Snapshot:
        content = self._content()
        return Snapshot(content.ledger, self._moment(), str(content.revision))

    def write(self, ledger: Ledger, before: Snapshot) -> bool:
        with self._locked():
            if str(self._content().revision) != before.version:
                return False
            content = _Content(int(before.version) + 1, self._boot, self._machine, ledger)
            self._replace(msgspec.json.format(msgspec.json.encode(content), indent=1))
        return True

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _moment(self) -> Moment:
        return Moment(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    def _content(self) -> _Content:
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return _Content(0, self._boot, self._machine, Ledger(self._lab))
        except OSError as error:
            raise LabError(f"ledger {self._path}: cannot be read: {error.strerror}") from error
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise LabError(
                f"ledger {self._path}: expected a file that seatrial wrote, found another: {error}"
            ) from error
        _check_lab(content.ledger, self._lab, str(self._path))
        if content.boot == self._boot:
            return content
        if content.machine != self._machine:
            raise LabError(
                f"ledger {self._path}: it was written on another machine ({content.machine or 'unknown'}), whose clock "
                "cannot be read here; use `leases: {kubeconfig: …}` for a lab that several machines use, or remove the "
                "file if no process uses it"
            )
        # The machine has been booted since: no holder lives. Tokens and outages stay.
        empty = msgspec.structs.replace(content.ledger, leases=(), line=())
        return msgspec.structs.replace(content, boot=self._boot, ledger=empty)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise LabError(f"ledger {self._path}: its lock file cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, data: bytes) -> None:
        """Replace the file in one step. Its mode follows the umask: a lab may belong to a group."""
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            with os.fdopen(descriptor, "wb") as sink:
                sink.write(data)
                os.fchmod(sink.fileno(), 0o666 & ~_umask())
            Path(name).replace(self._path)
        except OSError as error:
            raise LabError(f"ledger {self._path}: cannot be written: {error.strerror}") from error


class LeaseStore(Store):
    """The annotation of one Lease: Kubernetes changes no two objects in one step, and a place and the line must."""

    def __init__(self, access: Access, namespace: str, lab: str) -> None:
        self._access, self._namespace, self._lab = access, namespace, lab
        self._name = f"lab-{lab.lower().replace('_', '-').replace(':', '-')}"
        self._pool = access.pool(connections=2)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"

    def read(self) -> Snapshot:
        answer = self._send("GET", f"{self._path}/{self._name}")
        if answer.status == 404:
            return Snapshot(Ledger(self._lab), self._moment(answer), "")
        body = self._accepted(answer, "read")
        try:
            ledger = msgspec.json.decode((body["metadata"].get("annotations") or {})[ANNOTATION], type=Ledger)
        except (KeyError, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise LabError(
                f"Lease {self._namespace}/{self._name}: expected a ledger in annotation {ANNOTATION}, found none that "
                f"can be read: {error}"
            ) from error
        _check_lab(ledger, self._lab, f"Lease {self._namespace}/{self._name}")
        return Snapshot(ledger, self._moment(answer), str(body["metadata"]["resourceVersion"]))

    def write(self, ledger: Ledger, before: Snapshot) -> bool:
        body = self._body(ledger, before)
        if before.version:
            answer = self._send("PUT", f"{self._path}/{self._name}", body)
        else:
            answer = self._send("POST", self._path, body)
            if answer.status == 404:
                self._make_namespace()
                answer = self._send("POST", self._path, body)
        if answer.status == 409 or (answer.status == 404 and before.version):
            return False
        self._accepted(answer, "write")
        return True

    def close(self) -> None:
        self._pool.clear()

    def _body(self, ledger: Ledger, before: Snapshot) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": self._name,
            "labels": {LABEL: self._name.removeprefix("lab-")},
            "annotations": {ANNOTATION: msgspec.json.encode(ledger).decode()},
        }
        if before.version:
            metadata["resourceVersion"] = before.version
        names = ", ".join(lease.holder for lease in ledger.leases) or "nobody"
        spec = {"holderIdentity": names, "leaseTransitions": ledger.tokens, "renewTime": _micro(before.at.wall)}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _make_namespace(self) -> None:
        metadata = {"name": self._namespace, "labels": {LABEL: "true"}}
        answer = self._send(
            "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )
        if answer.status != 409:
            self._accepted(answer, "create the namespace for")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> urllib3.BaseHTTPResponse:
        headers = {**self._access.headers, "content-type": "application/json"}
        try:
            return self._pool.request(
                method,
                self._access.url + path,
                body=orjson.dumps(body) if body is not None else None,
                headers=headers,
                timeout=ANSWER_WITHIN,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise LabError(f"lab {self._lab!r}: no answer from {self._access.url}: {error}") from error

    def _accepted(self, answer: urllib3.BaseHTTPResponse, what: str) -> Any:
        if answer.status >= 300:
            try:
                message = orjson.loads(answer.data).get("message", "")
            except (orjson.JSONDecodeError, AttributeError):
                message = answer.data[:200].decode(errors="replace")
            raise LabError(
                f"lab {self._lab!r}: {self._access.url} refused to {what} Lease {self._namespace}/{self._name}: "
                f"{answer.status} {message}; docs/lab.md has the rights that are needed"
            )
        return orjson.loads(answer.data)

    def _moment(self, answer: urllib3.BaseHTTPResponse) -> Moment:
        try:
            wall = parsedate_to_datetime(answer.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError) as error:
            raise LabError(
                f"{self._access.url}: expected the header `date` in its response, by which leases end, found none"
            ) from error
        return Moment(wall, wall)


def _check_lab(ledger: Ledger, lab: str, where: str) -> None:
    if ledger.lab != lab:
        raise LabError(f"{where}: expected the ledger of lab {lab!r}, found that of {ledger.lab!r}")


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _umask() -> int:
    """The process's umask, read from /proc: os.umask would change it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def _micro(wall: float) -> str:
    return rfc3339(wall).removesuffix("Z") + ".000000Z"
