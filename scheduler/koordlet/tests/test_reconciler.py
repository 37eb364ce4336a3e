"""What the agent writes every ten seconds: memory of groups, settings of the kernel, quotas, scores, disks."""

import json
from pathlib import Path

import msgspec
import pytest

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.koordlet.tests.setting import GI, Setting

UNLIMITED = "9223372036854771712"  # as cgroup v1 shows it


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_memory_of_groups(tmp_path: Path, v2: bool) -> None:
    """CG-2 to CG-4: half of the request is protected, for the pod, its container, its class and all pods together."""
    setting = Setting(tmp_path, v2=v2, anolis=not v2, gates={"CgroupReconcile": True})
    amounts = {"requests": {"memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    prod = setting.pod("a", resources=amounts)
    be = setting.pod("b", "besteffort", "BE", resources={"requests": {"kubernetes.io/batch-memory": "1Gi"}})
    block = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 20, "throttlingPercent": 50, "oomKillGroup": 1}
    setting.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": block}})
    setting.run(11)
    groups = (prod, f"{prod}/a-c", "kubepods/burstable", "kubepods", be)

    def values(name: str) -> list[str]:
        return [setting.file(group, name, "memory") for group in groups]

    assert values("memory.min") == [str(GI)] * 4 + ["0"]
    assert setting.file(prod, "memory.low", "memory") == str(GI), "low is at least the minimum"
    assert setting.file(f"{prod}/a-c", "memory.high", "memory") == str(3 * GI)
    assert setting.file(f"{be}/b-c", "memory.high", "memory") == ("max" if v2 else UNLIMITED)
    assert values("memory.oom.group") == ["1", "1", "1", "0", "0"]
    if not v2:
        assert values("memory.wmark_ratio") == ["95", "95", "0", "0", "0"]
    setting.slo(resourceQOSStrategy={})
    setting.run(10)
    assert values("memory.min") == ["0"] * 5, "what is not enabled is neutral, not as it was"
    assert not setting.clock.faults.report()


def test_without_the_gate_nothing_is_written(tmp_path: Path) -> None:
    setting = Setting(tmp_path, v2=True)
    prod = setting.pod("a", resources={"requests": {"memory": "2Gi"}})
    block = {"memoryQOS": {"enable": True, "minLimitPercent": 50}}
    setting.slo(resourceQOSStrategy={"lsClass": block}, systemStrategy={"watermarkScaleFactor": 99})
    setting.run(11)
    assert setting.file(prod, "memory.min") == "0"
    assert (setting.root.proc / "sys/vm/watermark_scale_factor").read_text() == "10"


@pytest.mark.parametrize(
    ("factor", "scale", "expected"), [(88, 99, ("4724464", "99")), (400, 5, ("67584", "10")), (1, 500, ("53687", "10"))]
)
def test_settings_of_the_kernel(tmp_path: Path, factor: int, scale: int, expected: tuple[str, str]) -> None:
    """SY-1 with the figures of Koordinator's test: 512 GiB; values out of range are not written."""
    setting = Setting(tmp_path, memory=512 * GI, gates={"SystemConfig": True}, anolis=True)
    features = {"ID_ABSOLUTE_EXPEL": True, "ID_EXPELLER_SHARE_CORE": False}
    setting.slo(
        systemStrategy={
            "minFreeKbytesFactor": factor,
            "watermarkScaleFactor": scale,
            "memcgReapBackGround": 1,
            "schedFeatures": features,
            "schedIdleSaverWmark": 5,
        }
    )
    setting.run(11)
    folder = setting.root.proc / "sys/vm"
    names = [(folder / name).read_text().strip() for name in ("min_free_kbytes", "watermark_scale_factor")]
    assert tuple(names) == expected
    assert (setting.root.sys / "kernel/mm/memcg_reaper/reap_background").read_text().strip() == "1"
    # The kernel adds each to the others; the file of a fake root has the last one.
    assert (setting.root.sys / "kernel/debug/sched_features").read_text().strip() == "NO_ID_EXPELLER_SHARE_CORE"
    assert not (setting.root.proc / "sys/kernel/sched_idle_saver_wmark").exists(), "this kernel lacks it"


def ratio_node(ratio: str) -> Node:
    annotation = {"node.koordinator.sh/cpu-normalization-ratio": ratio}
    return msgspec.convert({"metadata": {"name": "n1", "annotations": annotation}}, Node)


@pytest.mark.parametrize("policy", ["none", "auto"])
def test_quotas_on_cpus_that_do_more(tmp_path: Path, policy: str) -> None:
    """HK-8: quotas of LS pods shrink by the ratio, also where bursts raise them from there; those of pods with bound
    CPUs, which have none (HK-5), do not; a ratio of 1 restores them."""
    setting = Setting(tmp_path, gates={"CPUNormalization": True})
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'}
    groups = [setting.pod("a", limits={"cpu": "1"}), setting.pod("b", limits={"cpu": "1"}, annotations=bound)]
    for group in (*groups, f"{groups[0]}/a-c", f"{groups[1]}/b-c"):
        setting.root._write(setting.root.cgroup / "cpu" / group / "cpu.cfs_quota_us", "100000")
    setting.slo(cpuBurstStrategy={"policy": policy})
    setting.agent._set_node(ratio_node("1.20"))
    setting.run(11)
    quotas = [setting.file(group, "cpu.cfs_quota_us") for group in (*groups, f"{groups[0]}/a-c")]
    assert quotas == ["83334", "-1", "83334"]
    setting.agent._set_node(ratio_node("1.00"))
    setting.run(11)
    assert setting.file(f"{groups[0]}/a-c", "cpu.cfs_quota_us") == "100000"


def test_oom_scores(tmp_path: Path) -> None:
    """HK-12: of a container, else of its pod; a score that the kernel lacks is none."""
    setting = Setting(tmp_path, gates={"OOMScoreAdj": True})
    scores = {}
    for number, (name, annotations) in enumerate(
        {
            "own": {"koordinator.sh/oom-score-adj": "-500", "koordinator.sh/oom-score-adj-spec": '{"c": 200}'},
            "pod": {"koordinator.sh/oom-score-adj": "-500", "koordinator.sh/oom-score-adj-spec": '{"d": 200}'},
            "wrong": {"koordinator.sh/oom-score-adj": "-2000", "koordinator.sh/oom-score-adj-spec": "{"},
        }.items()
    ):
        scores[name] = setting.root.process(f"{setting.pod(name, annotations=annotations)}/{name}-c", 100 + number)
    setting.slo()
    setting.run(11)
    assert {name: path.read_text() for name, path in scores.items()} == {"own": "200", "pod": "-500", "wrong": "0"}


def test_disks(tmp_path: Path) -> None:
    """BK-1: limits of best-effort pods and of one pod, costs at the root; what is taken out of the settings is
    unlimited again."""
    setting = Setting(tmp_path, gates={"BlkIOReconcile": True}, anolis=True)
    setting.root.disk("sdb", "8:16")
    own = {"enable": True, "blocks": [{"type": "device", "name": "/dev/sdb", "ioCfg": {"writeIOPS": 50}}]}
    pod = setting.pod("a", annotations={"koordinator.sh/blkioQOS": json.dumps(own)})

    def slo(*blocks: dict[str, object]) -> None:
        root = [{"type": "device", "name": "/dev/sdb", "ioCfg": {"readLatency": 2000}}]
        setting.slo(
            resourceQOSStrategy={
                "beClass": {"blkioQOS": {"enable": True, "blocks": blocks}},
                "cgroupRoot": {"blkioQOS": {"enable": True, "blocks": root}},
            }
        )

    def file(folder: str, name: str) -> str:
        return setting.file(folder, f"blkio.{name}", "blkio")

    slo({"type": "device", "name": "/dev/sdb", "ioCfg": {"readBPS": 1048576, "ioWeightPercent": 60}})
    setting.run(11)
    assert file("kubepods/besteffort", "throttle.read_bps_device") == "8:16 1048576"
    assert file("kubepods/besteffort", "cost.weight") == "8:16 60"
    assert file(pod, "throttle.write_iops_device") == "8:16 50"
    assert file("", "cost.qos") == "8:16 enable=1 ctrl=user rpct=95 rlat=2000 wpct=95 wlat=3000"
    slo()
    setting.run(10)
    assert file("kubepods/besteffort", "throttle.read_bps_device") == "8:16 0"
    assert file("kubepods/besteffort", "cost.weight") == "8:16 100"


def test_a_disk_that_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(tmp_path, gates={"BlkIOReconcile": True})
    blocks = [{"type": "device", "name": "/dev/none", "ioCfg": {"readBPS": 1}}]
    setting.slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": True, "blocks": blocks}}})
    setting.run(21)
    messages = [record.message for record in caplog.records if "expected a disk" in record.message]
    assert len(messages) == 1
    assert "device '/dev/none'" in messages[0]


def test_cookies_of_core_scheduling(tmp_path: Path) -> None:
    """HK-9: pods of a group share a cookie that those of others do not have, a class that expels apart; an exclusive
    pod has its own; `none` has none, and neither has anybody when the policy is another one."""
    setting = Setting(tmp_path, gates={"CoreSched": True}, anolis=True)
    pods = {
        "a": ("LS", {"koordinator.sh/core-sched-group-id": "g"}),
        "b": ("LS", {"koordinator.sh/core-sched-group-id": "g"}),
        "be": ("BE", {"koordinator.sh/core-sched-group-id": "g"}),
        "alone": ("LS", {"koordinator.sh/core-sched-policy": "exclusive"}),
        "none": ("LS", {"koordinator.sh/core-sched-policy": "none"}),
        "unnamed": ("LS", {}),
    }
    for number, (name, (qos, labels)) in enumerate(pods.items()):
        kind = "besteffort" if qos == "BE" else "burstable"
        setting.root.process(f"{setting.pod(name, kind, qos, labels=labels)}/{name}-c", 100 + number)

    def cookies() -> dict[str, int]:
        files = {name: setting.root.proc / f"{100 + n}/core_sched_cookie" for n, name in enumerate(pods)}
        return {name: int(file.read_text()) if file.exists() else 0 for name, file in files.items()}

    enabled = {"cpuQOS": {"enable": True}}
    block = {"lsClass": enabled, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}
    setting.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "coreSched"}, **block})
    setting.run(11)
    amounts = cookies()
    assert amounts["a"] == amounts["b"] != 0
    assert amounts["none"] == 0
    assert len({amounts[name] for name in ("a", "be", "alone", "none", "unnamed")}) == 5
    assert setting.file("kubepods/besteffort", "cpu.idle") == "1"
    setting.run(10)
    assert cookies() == amounts, "cookies stay"
    setting.slo(resourceQOSStrategy={"policies": {"cpuPolicy": "groupIdentity"}, **block})
    setting.run(10)
    assert set(cookies().values()) == {0}
    assert setting.file("kubepods/besteffort", "cpu.idle") == "0"


DEEP = '{"x": ' + "[" * 5000 + "]" * 5000 + "}"


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        pytest.param("koordinator.sh/memoryQOS", DEEP, id="memory-nested"),
        pytest.param("koordinator.sh/oom-score-adj-spec", DEEP, id="score-nested"),
        pytest.param("koordinator.sh/cpuBurst", DEEP, id="burst-nested"),
        pytest.param("koordinator.sh/blkioQOS", DEEP, id="disk-nested"),
        *(
            pytest.param("koordinator.sh/blkioQOS", json.dumps({"blocks": [block]}), id=what)
            for what, block in {
                "device-null": {"type": "device", "name": "\0"},
                "device-long": {"type": "device", "name": "n" * 5000},
                "device-dots": {"type": "device", "name": ".."},
                "group-null": {"type": "volumegroup", "name": "\0"},
            }.items()
        ),
    ],
)
def test_an_annotation_of_one_pod_stops_nothing(tmp_path: Path, annotation: str, text: str) -> None:
    """The pod after it gets its memory protection, its disk limit and its score."""
    gates = {"CgroupReconcile": True, "BlkIOReconcile": True, "OOMScoreAdj": True}
    setting = Setting(tmp_path, gates=gates, anolis=True)
    setting.root.disk("sdb", "8:16")
    setting.pod("a", annotations={annotation: text}, resources={"requests": {"memory": "2Gi"}})
    own = {"enable": True, "blocks": [{"type": "device", "name": "/dev/sdb", "ioCfg": {"writeIOPS": 50}}]}
    annotations = {"koordinator.sh/blkioQOS": json.dumps(own), "koordinator.sh/oom-score-adj": "-500"}
    good = setting.pod("b", annotations=annotations, resources={"requests": {"memory": "2Gi"}})
    score = setting.root.process(f"{good}/b-c", 100)
    setting.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}})
    setting.run(11)
    assert setting.file(good, "memory.min", "memory") == str(GI)
    assert setting.file(good, "blkio.throttle.write_iops_device", "blkio") == "8:16 50"
    assert score.read_text() == "-500"
    assert not setting.clock.faults.report()
