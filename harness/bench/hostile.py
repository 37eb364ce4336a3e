"""`bench hostile`: what a client notices while another one orders costly computations from the embedded server.

Each attack runs against a fresh server. A second client reads one small object every 5 ms over its own connection. Its
latency is measured in wall time and in processor time of the server's event loop thread; the latter does not depend on
what else runs on the machine. Reads that were due while one was delayed count with the delay that they would have had.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import uvloop

from seatrial.harness.apiserver import IDENTITY_KEPT
from seatrial.harness.bench.attacks import CORE, NAMESPACE, Attack, Sending
from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.raw_http import RawClient
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.processes import stop
from seatrial.scheduler.api.private_files import private_folder

INTERVAL = 0.005  # seconds between the reads of the second client
ACCOUNT = f"{CORE}/serviceaccounts/revoked"
P99_LIMIT = 0.1  # seconds of the loop's processor time


@dataclass(slots=True)
class Latencies:
    """Latencies of the second client's reads, in seconds."""

    wall: list[float] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)  # processor time of the server's event loop during the read


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of the samples do not exceed; 0 without samples."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def with_omitted(samples: Sequence[float], interval: float) -> list[float]:
    """The samples, and those of reads that could not begin: a read of 1 s delays 199 further ones of 5 ms interval."""
    numbers: list[float] = []
    for sample in samples:
        numbers.append(sample)
        rest = sample - interval
        while rest > interval:
            numbers.append(rest)
            rest -= interval
    return numbers


def bench_hostile(attacks: Sequence[Attack], rounds: int, progress: Progress) -> dict[str, Any]:
    """Run the attacks, `rounds` requests each. Returns figures by attack, in milliseconds."""
    figures: dict[str, Any] = {}
    for attack in attacks:
        with private_folder() as folder:
            path = folder / "kubeconfig"
            process, _ = start_process(path, fleet="", seed=0, port=0, log=folder / "log")
            try:
                codes, result = uvloop.run(_measure(load_access(path), process.pid, attack, rounds))
            finally:
                stop(process)
        figures[attack.name] = {
            "codes": sorted(set(codes)),
            "reads": len(result.loop),
            **figures_of("loop", result.loop),
            "wall_p99_ms": round(percentile(with_omitted(result.wall, INTERVAL), 0.99) * 1000, 1),
        }
        progress(f"{attack.name}: {figures[attack.name]}")
    return figures


def figures_of(name: str, samples: Sequence[float], limit: float = P99_LIMIT) -> dict[str, Any]:
    """The fields of an attack about latencies: seconds of processor time, `name`: whose."""
    numbers = with_omitted(samples, INTERVAL)
    p99 = percentile(numbers, 0.99)
    return {
        f"{name}_p99_ms": round(p99 * 1000, 1),
        f"{name}_max_ms": round(max(numbers, default=0.0) * 1000, 1),
        "within_limit": p99 < limit,
    }


def _loop_time(pid: int) -> float:
    """Seconds of processor time of the process's first thread, which runs the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _measure(access: Access, pid: int, attack: Attack, rounds: int) -> tuple[list[int], Latencies]:
    reader, attacker = RawClient(access, connections=1), RawClient(access, connections=2)
    await reader.connect()
    await attacker.connect()
    try:
        namespace = orjson.dumps({"metadata": {"name": NAMESPACE}})
        small = orjson.dumps({"metadata": {"name": "small"}, "data": {"a": "b"}})
        await reader.send_all([reader.render("/api/v1/namespaces", namespace)])
        await reader.send_all([reader.render(f"{CORE}/configmaps", small)])
        for sending in attack.setup:
            await attacker.send_all([_rendered(attacker, sending)])
        if attack.by != "administrator":
            administrator, attacker = attacker, RawClient(_stranger(access, attack), connections=2)
            await attacker.connect()
            if attack.by == "revoked account":
                await attacker.send_all([_rendered(attacker, attack.request(0))] * 2)
                await administrator.send_all([administrator.render(f"{ACCOUNT}", b"", method="DELETE")])
                await asyncio.sleep(IDENTITY_KEPT)
            await administrator.close()
        requests = [_rendered(attacker, attack.request(number)) for number in range(rounds)]
        read = reader.render(f"{CORE}/configmaps/small", b"", method="GET")
        attacking = asyncio.ensure_future(attacker.send_all(requests))
        latencies = Latencies()
        end = time.perf_counter() + 1.0  # controllers go on after the last answer
        while not attacking.done() or time.perf_counter() < end:
            begin, before = time.perf_counter(), _loop_time(pid)
            await reader.send_all([read])
            latencies.wall.append(time.perf_counter() - begin)
            latencies.loop.append(_loop_time(pid) - before)
            await asyncio.sleep(INTERVAL)
        return attacking.result(), latencies
    finally:
        await attacker.close()
        await reader.close()


def _stranger(access: Access, attack: Attack) -> Access:
    """Access without the administrator's certificate; with the token of an account if the attack asks for one."""
    assert access.tls is not None
    tls = ssl.create_default_context(cadata=b"".join(access.tls.get_ca_certs(binary_form=True)))
    if attack.by == "stranger":
        return Access(access.url, tls)
    pool = access.pool(connections=1)
    account = {"metadata": {"name": ACCOUNT.rpartition("/")[2]}}
    pool.request("POST", access.url + ACCOUNT.rpartition("/")[0], json=account)
    token = pool.request("POST", f"{access.url}{ACCOUNT}/token", json={"spec": {}}).json()["status"]["token"]
    return Access(access.url, tls, {"authorization": f"Bearer {token}"})


def _rendered(client: RawClient, sending: Sending) -> bytes:
    return client.render(sending.path, sending.body, method=sending.method, content_type=sending.content_type)
