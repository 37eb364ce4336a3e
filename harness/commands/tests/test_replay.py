import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.harness import cli
from seatrial.harness.errors import UsageError
from seatrial.harness.replay import plot

Seatrial = Callable[..., int]


@pytest.fixture
def replay(tmp_path: Path) -> Seatrial:
    """`seatrial replay openb` on a made-up trace: 6 cards, and pods that ask for 5.5."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "openb_pod_list_default.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100,4,T4\nb,32000,100,2,P100\n")
    rows = [f"p{number},1000,1,1,{milli}," for number, milli in enumerate([500] * 5 + [1000] * 3)] + ["q,1,1,0,0,"]
    pods.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *rows]))

    def run(*arguments: str) -> int:
        result: int = cli.app(["replay", "openb", "--nodes", str(nodes), "--pods", str(pods), *arguments])
        return result

    return run


def test_json_has_the_documented_fields(replay: Seatrial, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay("--load", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["policy"], printed["seed"], printed["load"]) == ("fgd", 42, 1.0)
    assert 91 < printed["arrived_percent"] <= 100
    assert printed["gpu_allocated_percent"] == printed["arrived_percent"]
    assert (printed["unplaced_pods"], "curve" in printed) == (0, False)
    assert {"fragmented_percent", "seconds"} <= set(printed)


def test_curve_adds_rows(replay: Seatrial, capsys: pytest.CaptureFixture[str]) -> None:
    replay("--policy", "bestfit", "--curve", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["curve"][-1]["arrived_percent"] == round(printed["arrived_percent"])
    assert set(printed["curve"][0]) >= {"arrived_percent", "gpu_allocated_percent", "fragmented_percent"}


def test_all_policies_with_two_seeds(replay: Seatrial, capsys: pytest.CaptureFixture[str]) -> None:
    replay("--policy", "all", "--seeds", "2", "--seed", "7", "--json")
    captured = capsys.readouterr()
    results = json.loads(captured.out)["policies"]
    assert len(results) == 8
    for result in results:
        assert result["seeds"] == [7, 8]
        assert result["gpu_allocated_percent"]["low"] <= result["gpu_allocated_percent"]["high"] <= 100
    assert len(captured.err.splitlines()) == 16  # progress


def test_configurations_of_the_scheduler_stand_beside_each_other(
    replay: Seatrial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler without one comes first; two files with one name are refused."""
    options = ["--policy", "scheduler"]
    for name in ("FGD", "OpportunityCost"):
        plugin = f"{{name: DeviceFragmentation, args: {{strategy: {name}}}}}"
        profile = (
            "{schedulerName: default-scheduler, plugins: {score: {enabled: [{name: DeviceFragmentation}]}},"
            f" pluginConfig: [{plugin}]}}"
        )
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{profile}]\n"
        )
        options += ["--scheduler-config", str(config)]
    assert replay(*options) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "pods_per_second"
    assert [line.split()[0] for line in lines] == ["scheduler", "FGD", "OpportunityCost"]
    with pytest.raises(UsageError, match="expected files with different names, found FGD, OpportunityCost, FGD"):
        replay(*options, *options[2:4])


def test_the_table_has_a_line_a_policy(replay: Seatrial, capsys: pytest.CaptureFixture[str]) -> None:
    replay("--policy", "random", "--seeds", "2")
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["policy", "arrived_percent", "gpu_allocated_percent"]
    assert line.startswith("random ")
    assert "±" in line


def test_check_is_refused_for_a_trace_too_coarse(replay: Seatrial) -> None:
    """Pods of half a card, on six cards, arrive at 125 % and at 133 %, not at 130 %."""
    with pytest.raises(UsageError, match=r"no pod arrives at 1[03]0 %: this is not the published workload 'default'"):
        replay("--check")


def test_check_exits_with_1_when_a_figure_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "openb_pod_list_default.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,1000,4,T4\n")
    rows = [f"p{number},1,1,1,10" for number in range(400)]  # one pod a quarter percent: every card fills up
    pods.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows]))

    code = cli.app(["replay", "openb", "--nodes", str(nodes), "--pods", str(pods), "--policy", "random", "--check"])

    assert code == 1
    assert "OFF random         at 130 %: measured 100.00, target 87.47" in capsys.readouterr().out


def test_check_is_refused_for_a_workload_without_published_results(tmp_path: Path) -> None:
    pods = tmp_path / "mine.csv"
    with pytest.raises(UsageError, match="no results are published for workload 'mine'; known"):
        cli.app(["replay", "openb", "--nodes", str(pods), "--pods", str(pods), "--check"])


def test_plot_is_a_picture(replay: Seatrial, tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    replay("--policy", "bestfit", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--policy", "best"], "no policy 'best'", id="unknown-policy"),
        pytest.param(["--check", "--load", "1"], "expected --load 1.3, found --load 1", id="check-at-another-load"),
        pytest.param(["--scheduler-config", "x.yaml"], "needs --policy scheduler, found --policy fgd", id="config"),
        pytest.param(
            ["--policy", "scheduler", "--scheduler-config", "no-such.yaml"], "--scheduler-config: ", id="no-config"
        ),
        pytest.param(["--plot", "curve.pdf"], r"expected a name that ends in \.png, found '\.pdf'", id="not-png"),
        pytest.param(["--plot", "no/such/curve.png"], "expected a folder no/such, found none", id="no-folder"),
    ],
)
def test_a_wrong_option_is_refused(replay: Seatrial, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replay(*arguments)


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    """Options of `compare` on a made-up trace: 8 cards, and pods of a whole and a twentieth of a card."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "openb_pod_list_mixed.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,640000,1000000,4,T4\nb,64000,1000000,4,T4\n")
    rows = [f"s{number:03},1000,1,1,50" for number in range(120)] + [f"w{number},4000,1,4,1000" for number in range(1)]
    pods.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows]))
    return [str(pods), "--nodes", str(nodes), "--seeds", "2"]


def compare(*arguments: str) -> int:
    result: int = cli.app(["replay", "compare", *arguments])
    return result


def test_compare_has_a_line_for_each_workload(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*traces, "--policy", "fgd", "--beside", "fgd", "--within", "0") == 0
    header, line, _, _, sizes = capsys.readouterr().out.splitlines()
    assert header.startswith("workload")
    assert line.split()[:13] == ["mixed", *["+0.00", "±", "0.00"] * 4]
    assert line.endswith("never")
    assert sizes.startswith("mixed         part of a gpu ")
    assert ", 4 gpus 0 (0); +0.00 at " in sizes


def test_compare_exits_with_1_when_large_pods_are_refused_earlier(
    traces: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*traces, "--policy", "random", "--beside", "opportunity", "--within", "100", "--json") == 1
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert row["largest_refused_earlier_with_seeds"]
    assert row["unplaced"]["4_gpus"]["policy"] > row["unplaced"]["4_gpus"]["beside"]


def test_compare_through_the_scheduler(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*traces, "--policy", "scheduler", "--beside", "random", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert 0 < row["gpu_allocated_percent"]["130"] <= 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--policy", "best"], "no policy 'best'", id="policy"),
        pytest.param(["--beside", "best"], "no policy 'best'", id="beside"),
        pytest.param(["--scheduler-config", "x.yaml"], "needs the policy scheduler", id="config"),
    ],
)
def test_compare_refuses_a_wrong_option(traces: list[str], arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(*traces, *arguments)


def test_compare_has_curves_a_bound_and_unplaced_pods(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, table = tmp_path / "curves.png", tmp_path / "table.md"
    cli.app(
        ["replay", "compare", *traces, "--policy", "bestfit", "--json", "--plot", str(picture), "--table", str(table)]
    )
    (row,) = json.loads(capsys.readouterr().out)["workloads"]
    assert all(max(each["policy"], each["beside"]) <= each["bound"] + 0.01 for each in row["curve"])
    assert row["curve"][-1]["bound"] == 100  # 130 % arrived
    assert set(row["unplaced_at_100_percent"]) == set(row["unplaced"]) == {"part_of_a_gpu", "4_gpus"}
    assert row["lowest"]["difference_points"] == min(round(each["policy"] - each["beside"], 3) for each in row["curve"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    head, _, line = table.read_text().splitlines()
    assert head.endswith("4 gpus unplaced at 100 %: bestfit (fgd) |")
    assert line.startswith("| mixed | ")


def test_a_plot_without_matplotlib_says_what_to_install(
    replay: Seatrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra. Both commands say so before they replay anything."""
    monkeypatch.setattr(plot, "find_spec", lambda _name: None)
    for run in (lambda: replay("--plot", str(tmp_path / "a.png")), lambda: cli.app(["replay", "day", str(tmp_path)])):
        with pytest.raises(
            UsageError, match=r"expected the package matplotlib, found none; `pip install 'seatrial\[plots\]'"
        ):
            run()
    assert not list(tmp_path.glob("*.png"))
