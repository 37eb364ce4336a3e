"""Tenants as processes, over a stand-in for libcuda: what they count, and how they end."""

from pathlib import Path

import pytest

from seatrial.harness.hami.isolation.samples import mean_interval, rates
from seatrial.harness.hami.isolation.tenants import Arrangement, Limits, TenantEnded, TenantProcess, clear_lock, tenants

MIB = 1 << 20
CARD = 8 << 30


def arrangement(libcuda: Path, **more: str) -> Arrangement:
    return Arrangement(None, {"LD_LIBRARY_PATH": str(libcuda), **more})


def test_memory_is_filled_to_the_limit_and_given_back(libcuda: Path, tmp_path: Path) -> None:
    limits = Limits(tmp_path / "a.cache", memory=1000 * MIB)
    with tenants(arrangement(libcuda), limits) as (one,):
        assert one.ask("totals") == {
            "free": 1000 * MIB,
            "total": 1000 * MIB,
            "device_total": 1000 * MIB,
            "multiprocessors": 80,
        }
        for _ in range(2):
            assert one.ask("fill", block=64 * MIB) == {
                "blocks": 15,
                "code": 2,
                "free_before": 1000 * MIB,
                "free": 40 * MIB,
            }
            assert one.ask("allocate", bytes=64 * MIB, kind="managed") == {"code": 2}
            assert one.ask("allocate", bytes=2000 * MIB, kind="host") == {"code": 0}
            assert one.ask("release") == {"free": 1000 * MIB, "codes": {}}


def test_without_limits_the_card_is_seen(libcuda: Path) -> None:
    with tenants(arrangement(libcuda), None) as (one,):
        assert one.ask("totals")["total"] == CARD


def test_finished_kernels_are_counted(libcuda: Path, tmp_path: Path) -> None:
    """Two tenants with the same kernels at the same time: a kernel of the one limited to three percent takes 67 ms."""
    with tenants(arrangement(libcuda), None, Limits(tmp_path / "a", cores=3)) as both:
        for tenant in both:
            tenant.send("run", seconds=1.2, tick=0.1, rounds=2_000_000)
        free, held = (mean_interval(rates(tenant.ticks(within=60))).mean for tenant in both)
    assert 0 < held < free


def test_a_launch_is_made_as_long_as_wanted(libcuda: Path) -> None:
    with tenants(arrangement(libcuda), None) as (one,):
        answer = one.ask("calibrate", seconds=0.005)
        assert answer["rounds"] > 0
        assert one.ask("launches", count=20)["seconds"] > 0


def test_a_tenant_that_crashes_says_how(libcuda: Path) -> None:
    with tenants(arrangement(libcuda, STANDIN_CRASH="fill"), None) as (one,):
        with pytest.raises(TenantEnded, match=r"tenant \d+ died \(signal 11\)"):
            one.ask("fill", block=MIB)
        with pytest.raises(TenantEnded, match=r"died"):
            one.ask("totals")


def test_a_tenant_that_hangs_is_killed(libcuda: Path) -> None:
    with tenants(arrangement(libcuda, STANDIN_HANG="launch"), None) as (one,):
        with pytest.raises(TenantEnded, match=r"did not answer within 0\.5 s and was killed \(signal 9\)"):
            one.ask("launches", count=1, within=0.5)
        assert not Path(f"/proc/{one.pid}").exists()


def test_a_tenant_that_cannot_start_says_why() -> None:
    with pytest.raises(TenantEnded, match=r"failed: .*libcuda\.so\.1"), tenants(Arrangement(None), None):
        pass


def test_environment_of_a_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_SM_LIMIT", "5")
    monkeypatch.setenv("LD_PRELOAD", "/left/over.so")
    bare = Arrangement(Path("/opt/libvgpu.so"), {"X": "1"})
    env = bare.environment_of(Limits(tmp_path / "a.cache", memory=7))
    assert {name: env[name] for name in env if name.startswith(("CUDA_", "LD_P", "GPU_", "X"))} == {
        "CUDA_DEVICE_MEMORY_LIMIT": "7",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "a.cache"),
        "CUDA_REDIRECT": "/opt/libvgpu.so",
        "GPU_CORE_UTILIZATION_POLICY": "force",
        "LD_PRELOAD": "/opt/libvgpu.so",
        "X": "1",
    }
    assert not {name for name in bare.environment_of(None) if name.startswith(("CUDA_", "LD_P"))}


def test_the_lock_of_a_dead_tenant_is_removed(tmp_path: Path) -> None:
    assert clear_lock(tmp_path / "lockfolder") is False
    (tmp_path / "lockfolder" / "lock").touch()
    assert clear_lock(tmp_path / "lockfolder") is True
    assert list((tmp_path / "lockfolder").iterdir()) == []


def test_nothing_is_left_of_a_tenant(libcuda: Path) -> None:
    with tenants(arrangement(libcuda), None) as (one,):
        assert isinstance(one, TenantProcess)
        assert Path(f"/proc/{one.pid}").exists()
    assert not Path(f"/proc/{one.pid}").exists()
