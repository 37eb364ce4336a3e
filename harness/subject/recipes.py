"""Recipes: what a scheduler of another project needs beside itself to be judged, as a YAML file.

A subject `FILE.yaml` is a recipe: definitions and objects are created, companions are started, then the scheduler.
In paths and command lines `{recipe}` is the folder of the recipe, and `{programs}` that of the programs and their
sources: $SEATRIAL_SCHEDULERS, by default that of `.ci/scheduler-programs`; `{python}` is this Python, for modules.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import orjson
import yaml

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.definitions import create_definition, wait_served
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.processes import start_child, stop
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.services import PORT, free_port
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.transport import Request
from seatrial.scheduler.api.yaml_files import load_yaml

PROGRAMS = "SEATRIAL_SCHEDULERS"
LAST_LINES = 20
STAYS = 1.0  # seconds of real time in which a program with wrong flags ends
SERVED_WITHIN = 60.0  # seconds after its creation in which a definition is served
OURS = "seatrial"  # in place of a command line: our own scheduler
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object to create in the collection `path`."""

    path: str
    body: dict[str, Any]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to start a scheduler. Command lines are as `--subject` takes them."""

    name: str
    scheduler: str
    version: str = ""
    kubernetes: str = ""  # the release that it is built on
    dialect: str = ""
    config: str = ""  # KubeSchedulerConfiguration, beside the recipe
    services: str = ""
    definitions: tuple[str, ...] = ()  # folders with CustomResourceDefinitions
    objects: tuple[Made, ...] = ()
    companions: tuple[str, ...] = ()
    files: dict[str, str] = {}  # name → text, in `{folder}`; a certificate is beside them, tls.crt and tls.key
    # The suites that speak its words, and which of their tests, as -k takes it; "": all.
    suites: dict[str, str] = msgspec.field(default_factory=lambda: {"intents": ""})
    manager: str = ""  # beside it in the cases about quotas and usage reports, as --manager takes it
    converted_by: str = ""  # NAMESPACE/SERVICE that the definitions name for conversions, of which cases need none


def is_recipe(subject: str) -> bool:
    """Whether a subject is the path of a recipe, and not a command line that ends with a file's name."""
    return subject.endswith((".yaml", ".yml")) and (" " not in subject.strip() or Path(subject).is_file())


def read_recipe(file: Path) -> Recipe:
    """
    Raises:
        UsageError: it cannot be read, or is no recipe.
    """
    try:
        recipe = msgspec.convert(load_yaml(file.read_bytes()), Recipe)
    except OSError as error:
        raise UsageError(f"--subject {file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"--subject {file}: expected a recipe (docs/scoreboard.md): {error}") from error
    here = file.parent.resolve()

    def named(line: str) -> str:
        marks = {"{programs}": str(programs()), "{recipe}": str(here), "{python}": sys.executable}
        for mark, value in marks.items():
            line = line.replace(mark, value)
        return line

    return msgspec.structs.replace(
        recipe,
        scheduler=named(recipe.scheduler),
        manager=named(recipe.manager),
        companions=tuple(named(line) for line in recipe.companions),
        definitions=tuple(named(folder) for folder in recipe.definitions),
        config=str((here / recipe.config).resolve()) if recipe.config else "",
    )


def programs() -> Path:
    """The folder of other projects' programs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(os.environ.get(PROGRAMS) or Path(cache) / "seatrial" / "schedulers")


def check_subject(subject: str) -> None:
    """Check a subject that is a command line or a recipe before anything is started.

    Raises:
        UsageError: a program is missing, or the recipe cannot be read.
    """
    if not is_recipe(subject):
        foreign_command(subject, Path("kubeconfig"))
        return
    recipe = read_recipe(Path(subject))
    lines = [line for line in (*recipe.companions, recipe.scheduler) if line != OURS]
    missing = {word for line in (*lines, recipe.manager) for word in line.split() if _is_missing(word)}
    if missing:
        raise UsageError(
            f"--subject {subject}: expected {', '.join(sorted(missing))}, found no such program;"
            f" .ci/scheduler-programs builds it, ${PROGRAMS} names another folder"
        )
    for line in lines:
        foreign_command(line, Path("kubeconfig"))
    _definitions(recipe)


def _is_missing(word: str) -> bool:
    return Path(word).parent == programs() and not Path(word).is_file()


@contextmanager
def companions(recipe: Recipe, cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Callable[[], None]]:
    """Create what the scheduler needs, and run the programs beside it; the value checks that these still run.

    Raises:
        ClusterError: a definition is not served.
        SubjectError: a companion ended, as the check says later.
    """
    for body in _definitions(recipe):
        create_definition(cluster, body)
        wait_served(cluster, body, within=SERVED_WITHIN)
    for made in recipe.objects:
        accepted(cluster.call(Request("POST", made.path, orjson.dumps(made.body))), f"create {made.path}")
    port = str(free_port())

    def filled(text: str) -> str:
        return text.replace("{folder}", str(folder)).replace(PORT, port)

    for name, text in recipe.files.items():
        write_private(folder / Path(name).name, filled(text).replace("{kubeconfig}", str(kubeconfig)).encode())
    if recipe.files:
        from seatrial.harness.apiserver import make_credentials

        pair = make_credentials((), cluster.clock.now()).server
        write_private(folder / "tls.crt", pair.certificate)
        write_private(folder / "tls.key", pair.key)
    started: list[tuple[str, Path, subprocess.Popen[bytes]]] = []

    def check() -> None:
        for line, log, process in started:
            if process.poll() is not None:
                message = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
                raise SubjectError(f"{recipe.name}: {line!r} ended with status {process.poll()}; its log:\n{message}")

    with ExitStack() as cleanup:
        for number, line in enumerate(recipe.companions):
            log = folder / f"companion-{number}.log"
            with log.open("wb") as sink:
                process = start_child(foreign_command(filled(line), kubeconfig), stdout=sink, stderr=sink)
            cleanup.callback(stop, process)
            started.append((line, log, process))
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STAYS)
            check()
        yield check


def _definitions(recipe: Recipe) -> list[dict[str, Any]]:
    bodies: list[Any] = []
    for folder in map(Path, recipe.definitions):
        files = sorted(folder.glob("*.yaml"))
        if not files:
            raise UsageError(f"{folder}: expected YAML files of CustomResourceDefinitions, found none")
        try:
            bodies += [body for file in files for body in yaml.load_all(file.read_bytes(), Loader=_LOADER)]
        except (OSError, yaml.YAMLError) as error:
            raise UsageError(f"{folder}: expected YAML files of CustomResourceDefinitions: {error}") from error
    definitions = [body for body in bodies if isinstance(body, dict) and body.get("kind") == "CustomResourceDefinition"]
    if recipe.converted_by:
        namespace, _, name = recipe.converted_by.partition("/")
        service = {"namespace": namespace, "name": name, "path": "/convert"}
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
        for body in definitions:
            body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return definitions
