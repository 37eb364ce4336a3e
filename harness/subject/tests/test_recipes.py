"""Recipes: what is read, what is refused, and what is made and started before the scheduler."""

import stat
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.subject.protocol import is_foreign
from seatrial.harness.subject.recipes import OURS, PROGRAMS, check_subject, companions, read_recipe
from seatrial.scheduler.api.transport import Request

SHIPPED = sorted((Path(__file__).parents[3] / "suites" / "recipes").glob("*.yaml"))
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.acme.example.com}
spec:
  group: acme.example.com
  scope: Cluster
  names: {kind: Queue, plural: queues, singular: queue}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
OBJECT = "objects: [{path: /apis/acme.example.com/v1/queues, body: {apiVersion: acme.example.com/v1, kind: Queue,"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, with one definition."""
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "queues.yaml").write_text(DEFINITION)
    return tmp_path


def recipe(folder: Path, text: str) -> Path:
    file = folder / "acme.yaml"
    file.write_text(f"name: Acme\n{text}\n")
    return file


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_recipes_that_come_with_seatrial(file: Path) -> None:
    made = read_recipe(file)

    assert made.dialect
    assert is_foreign(str(file)) is (made.scheduler != OURS)
    assert not made.config or Path(made.config).is_file()


def test_places_are_filled_in(folder: Path) -> None:
    made = read_recipe(recipe(folder, "scheduler: '{programs}/acme --rules {recipe}/rules'\nconfig: ../a.yaml"))

    assert made.scheduler == f"{folder}/acme --rules {folder}/rules"
    assert made.config == str(folder.parent / "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "missing required field `scheduler`", id="no-scheduler"),
        pytest.param("scheduler: a\nqueue: b", "unknown field `queue`", id="an-unknown-field"),
        pytest.param("scheduler: [a]", "Expected `str`", id="a-wrong-type"),
        pytest.param("scheduler: 'a", "expected a recipe", id="no-yaml"),
    ],
)
def test_what_is_no_recipe(folder: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe(recipe(folder, text))


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_recipe(tmp_path / "none.yaml")


def test_a_command_line_may_end_with_a_file(folder: Path) -> None:
    """As a scheduler with a configuration of its own has it; a recipe may have a space in its path."""
    program(folder, "acme", "exit 0")
    check_subject(f"{folder}/acme --config acme.yaml")
    check_subject(str(recipe(folder, "scheduler: '{programs}/acme'").rename(folder / "a recipe.yaml")))


def test_missing_programs_are_named_before_anything_is_started(folder: Path) -> None:
    file = recipe(
        folder, "scheduler: '/usr/bin/env A={kubeconfig} {programs}/acme'\ncompanions: ['{programs}/acme-controller']"
    )

    with pytest.raises(UsageError, match=rf"{folder}/acme, {folder}/acme-controller, found no such program"):
        check_subject(str(file))


def test_missing_definitions_are_named(folder: Path) -> None:
    program(folder, "acme", "exit 0")
    file = recipe(folder, "scheduler: '{programs}/acme'\ndefinitions: ['{programs}/none']")

    with pytest.raises(UsageError, match="none: expected YAML files of CustomResourceDefinitions, found none"):
        check_subject(str(file))


def test_definitions_that_are_no_yaml_are_named(folder: Path) -> None:
    program(folder, "acme", "exit 0")
    (folder / "crds" / "broken.yaml").write_text("a: [")
    file = recipe(folder, "scheduler: '{programs}/acme'\ndefinitions: ['{programs}/crds']")

    with pytest.raises(UsageError, match="crds: expected YAML files of CustomResourceDefinitions: "):
        check_subject(str(file))


def test_definitions_and_objects_are_made_before_the_companions_start(folder: Path) -> None:
    program(folder, "controller", "exec sleep 60")
    file = recipe(
        folder,
        f"scheduler: a\ndefinitions: ['{{programs}}/crds']\ncompanions: ['{{programs}}/controller']\n"
        f"{OBJECT} metadata: {{name: default}}}}}}]",
    )
    with VirtualBackend().start() as cluster, companions(read_recipe(file), cluster, folder / "kubeconfig", folder):
        response = cluster.call(Request("GET", "/apis/acme.example.com/v1/queues/default"))

        assert orjson.loads(response.body)["kind"] == "Queue"


def test_a_companion_finds_its_files_and_a_certificate(folder: Path) -> None:
    """Files have the port and the folder filled in; the definitions name the service that converts."""
    program(folder, "controller", 'cat "$1" && test -s "$2/tls.crt" && test -s "$2/tls.key"; exit 3')
    file = recipe(
        folder,
        "scheduler: a\nfiles: {a.conf: 'port {port} in {folder} for {kubeconfig}'}\ndefinitions: ['{programs}/crds']\n"
        "converted_by: acme/webhook\ncompanions: ['{programs}/controller {folder}/a.conf {folder} {kubeconfig}']",
    )
    with VirtualBackend().start() as cluster:
        with (
            pytest.raises(
                SubjectError, match=rf"ended with status 3; its log:\nport \d+ in {folder} for {folder}/kubeconfig"
            ),
            companions(read_recipe(file), cluster, folder / "kubeconfig", folder),
        ):
            pass
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.acme.example.com"
        client_config = orjson.loads(cluster.call(Request("GET", path)).body)["spec"]["conversion"]["webhook"][
            "clientConfig"
        ]

    assert client_config["service"] == {"namespace": "acme", "name": "webhook", "path": "/convert", "port": 443}


def test_a_companion_that_ends_at_once_is_told_with_its_log(folder: Path) -> None:
    program(folder, "controller", "echo no cluster there; exit 3")
    file = recipe(folder, "scheduler: a\ncompanions: ['{programs}/controller']")

    with (
        VirtualBackend().start() as cluster,
        pytest.raises(SubjectError, match=r"controller' ended with status 3; its log:\nno cluster there"),
        companions(read_recipe(file), cluster, folder / "kubeconfig", folder),
    ):
        pass
