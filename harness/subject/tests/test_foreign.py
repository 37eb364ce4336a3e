"""What a foreign scheduler's binary is given: its command line and its configuration."""

import re
from pathlib import Path

import pytest
import yaml

from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.errors import UsageError
from seatrial.harness.subject.foreign import completed, foreign_command
from seatrial.harness.subject.process import our_command
from seatrial.harness.subject.protocol import open_subject

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("/bin/sh", "/bin/sh --kubeconfig k --config c", id="flags-are-added"),
        pytest.param("/bin/sh -c={config}", "/bin/sh -c=c --kubeconfig k", id="its-own-flag-is-used"),
    ],
)
def test_a_binary_is_told_its_configuration(words: str, expected: str) -> None:
    assert " ".join(foreign_command(words, Path("k"), Path("c"))) == expected


def test_without_a_configuration_nobody_is_told_of_one() -> None:
    assert "--config" not in foreign_command("/bin/sh", Path("k"))
    assert "--config" not in our_command(Path("k"), 0)
    assert our_command(Path("k"), 0, Path("c"))[-2:] == ["--config", "c"]


def test_a_binary_of_this_folder_is_not_looked_for_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sh").write_text("#!/bin/true\n")
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert foreign_command("sh", Path("k"))[0] == "./sh"


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        pytest.param("/nowhere/scheduler", "no subject '/nowhere/scheduler': expected inprocess", id="not-there"),
        pytest.param("/bin", "no subject '/bin'", id="a-folder"),
        pytest.param("", "no subject ''", id="nothing"),
        pytest.param("/bin/sh 'oops", "No closing quotation", id="an-open-quote"),
        pytest.param("/etc/passwd", "/etc/passwd may not be executed", id="no-program"),
    ],
)
def test_what_cannot_be_started_is_refused(text: str, saying: str) -> None:
    with pytest.raises(UsageError, match=saying):
        foreign_command(text, Path("k"))


@pytest.mark.parametrize(
    ("content", "connection", "election"),
    [
        pytest.param("", {"kubeconfig": "k"}, {"leaderElect": False}, id="nothing-said"),
        pytest.param(
            "clientConnection: {qps: 9, kubeconfig: ''}",
            {"kubeconfig": "k", "qps": 9},
            {"leaderElect": False},
            id="an-empty-name-is-no-name",
        ),
        pytest.param(
            "clientConnection: {kubeconfig: mine}\nleaderElection: {leaderElect: true, resourceName: a}",
            {"kubeconfig": "mine"},
            {"leaderElect": True, "resourceName": "a"},
            id="what-the-user-says-stays",
        ),
        pytest.param(
            "leaderElection: {resourceName: a}",
            {"kubeconfig": "k"},
            {"leaderElect": False, "resourceName": "a"},
            id="half-an-election",
        ),
    ],
)
def test_a_configuration_is_completed(
    content: str, connection: dict[str, object], election: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(HEAD + content + "\nprofiles: [{schedulerName: x}]\n")
    results = completed(path, Path("k"))
    assert results["clientConnection"] == connection
    assert results["leaderElection"] == election
    assert results["profiles"] == [{"schedulerName": "x"}]
    assert results["apiVersion"] == yaml.safe_load(HEAD)["apiVersion"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param("kind: Pod", "found 'Pod'", id="another-kind"),
        pytest.param("- a", "found 'list'", id="a-list"),
        pytest.param("{", "expected a KubeSchedulerConfiguration file", id="no-yaml"),
    ],
)
def test_another_file_is_no_configuration(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(content)
    with pytest.raises(UsageError, match=text):
        completed(path, Path("k"))


def test_every_start_names_the_way_to_the_cluster(tmp_path: Path) -> None:
    """In the flag and in the configuration alike: directly, then on a troubled way, then directly again."""
    script, config = tmp_path / "scheduler", tmp_path / "config.yaml"
    script.write_text('#!/bin/sh\necho "flag: $2" && grep kubeconfig: "$4" && exec sleep 600\n')
    script.chmod(0o700)
    config.write_text(HEAD + "profiles: [{schedulerName: x}]\n")
    with EmbeddedBackend(seed=1).start() as cluster, open_subject(str(script), cluster, config=config) as subject:
        assert subject is not None
        assert cluster.endpoint is not None

        def starts(count: int) -> list[tuple[str, str]]:
            matches: list[tuple[str, str]] = []

            def is_logged() -> bool:
                matches[:] = re.findall(r"flag: (\S+)\n\s*kubeconfig: (\S+)\n", subject.log())
                return len(matches) == count

            assert cluster.wait(is_logged, within=60), subject.log()
            return matches

        starts(1)
        with subject.troubled():
            starts(2)
        (direct, in_file), (troubled, troubled_in_file), last = starts(3)
        assert direct == in_file == str(cluster.endpoint.kubeconfig)
        assert troubled == troubled_in_file != direct
        assert last == (direct, direct)
