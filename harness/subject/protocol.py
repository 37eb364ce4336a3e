"""The subject is the scheduler under test: ours in this process, ours as a process, any binary, or one deployed.

For each of them, the harness relies only on pods being bound.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import yaml

from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.subject.foreign import KIND, completed, foreign_command
from seatrial.harness.subject.recipes import OURS, Recipe, companions, is_recipe, read_recipe
from seatrial.harness.subject.services import LOOPBACK, PORT, check_services
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.yaml_files import load_yaml

CONFIG_VERSION = "kubescheduler.config.k8s.io/v1"
IN_PROCESS, DEPLOYED, NONE = "inprocess", "deployed", "none"
IDLE, RANDOM = "idle", "random"  # schedulers that every case about scheduling must fail (reference.py)


def is_foreign(subject: str) -> bool:
    """Whether it is a scheduler of another project: a binary, a recipe of one, or one that is deployed."""
    if subject in {IN_PROCESS, OURS, NONE, IDLE, RANDOM}:
        return False
    return not is_recipe(subject) or read_recipe(Path(subject)).scheduler != OURS


class Subject(ABC):
    """A running scheduler."""

    name: str
    version: str
    check_companions: Callable[[], None] = staticmethod(lambda: None)
    """Raises SubjectError if a program beside it has ended."""

    @abstractmethod
    def log(self) -> str:
        """Return its log so far, for evidence; empty if there is none."""

    def objects(self) -> Counter[str] | None:
        """The objects of its state by type, to find leaks; None where it is another process."""
        return None

    def memory_mib(self) -> float | None:
        """Its resident memory in MiB; None where it is no process of its own."""
        return None

    @abstractmethod
    def ask(self, method: str, path: str, body: bytes = b"") -> Response | None:
        """One request to its debug and services port; None if its address is unknown. Code 0: no answer came."""

    @abstractmethod
    def kill(self) -> None:
        """Stop it without cleanup, as `kill -9` does."""

    @abstractmethod
    def start_again(self) -> None:
        """After `kill`: a new one, whose state comes from the API server alone.

        Raises:
            SubjectError: it did not start.
        """

    def ensure_started(self) -> None:  # noqa: B027 not every subject can be killed
        """Start it again if it was killed and not started, or ended by itself: for the cases after this one.

        Raises:
            SubjectError: it did not start.
        """

    def crash(self) -> str:
        """How it ended by itself, with its last log lines; empty if it runs or was killed on purpose."""
        return ""

    @abstractmethod
    def troubled(self) -> AbstractContextManager[Link]:
        """Its way to the API server as one that can be made to fail; one that is a process is started anew for it."""

    @abstractmethod
    def configured(self, config: Path) -> AbstractContextManager[None]:
        """It has the KubeSchedulerConfiguration `config` meanwhile; it is started anew for that, and afterwards."""

    @abstractmethod
    def check(self) -> None:
        """Check that it still runs.

        Raises:
            SubjectError: it does not; the message has its last log lines.
        """


@contextmanager
def open_subject(
    name: str,
    cluster: Cluster,
    *,
    seed: int = 0,
    log_file: Path | None = None,
    config: Path | None = None,
    profiles: Collection[str] | None = None,
    services: str = "",
) -> Iterator[Subject | None]:
    """Start the scheduler called `name` on `cluster`, and stop it in the end; None where there is nothing to start.

    `name` is `inprocess`, `seatrial`, `deployed`, `none`, `idle`, `random`, a recipe, or a command line whose first
    word is a path and in which `{kubeconfig}` stands for the cluster's kubeconfig and `{config}` for `config`; without
    them `--kubeconfig FILE` and, if there is a `config`, `--config FILE` are added. `config` is a
    KubeSchedulerConfiguration file; a binary gets a copy in which the cluster is named. A scheduler that the harness
    did not start keeps its own.
    `profiles` are the profiles of it that are needed; only `inprocess` leaves out others (`InProcess`).
    `services` is where a binary answers people (`Subject.ask`), as in `http://127.0.0.1:10251`; `{port}` in it and in
    the command line is a free port, so that several can run at once.

    Raises:
        UsageError: no such subject, or one that cannot work on this cluster.
        SubjectError: it did not start.
    """
    if is_recipe(name):
        with _of_recipe(read_recipe(Path(name)), cluster, log_file, config, services) as made:
            yield made
        return
    if services:
        check_services(services, name)
    if name in {DEPLOYED, NONE}:
        yield None
    elif name in {IDLE, RANDOM}:
        from seatrial.harness.subject.reference import Idle, RandomBinder

        with Idle(cluster) if name == IDLE else RandomBinder(cluster, seed=seed) as reference:
            yield reference
    elif name == IN_PROCESS:
        if Capability.VIRTUAL_TIME not in cluster.capabilities:
            raise UsageError(
                f"subject {IN_PROCESS!r} lives in virtual time, cluster {cluster.name!r} does not;"
                f" use --backend virtual, or --subject {OURS}"
            )
        from seatrial.harness.subject.inprocess import InProcess

        with InProcess(cluster, seed=seed, config=config, profiles=profiles) as subject:
            yield subject
    else:
        from seatrial.harness.subject.process import ProcessSubject, our_command

        if cluster.endpoint is None:
            raise UsageError(
                f"subject {name!r} is a process, and cluster {cluster.name!r} can only be reached from inside this one;"
                f" use --backend embedded, or --subject {IN_PROCESS}"
            )
        kubeconfig = cluster.endpoint.kubeconfig
        where = f"http://{LOOPBACK}:{PORT}" if name == OURS else services
        with private_folder() as folder:

            def command(kubeconfig: Path, other: Path | None = None) -> list[str]:
                own = _renamed(other or config or _plain(cluster, folder), cluster, folder)
                if name == OURS:
                    return [*our_command(kubeconfig, seed, own), "--port", PORT]
                return foreign_command(name, kubeconfig, _for_this_run(own, kubeconfig, folder))

            with ProcessSubject(
                name, command(kubeconfig), ways=(kubeconfig, command), log_file=log_file, services=where
            ) as process:
                yield process


@contextmanager
def _of_recipe(
    recipe: Recipe, cluster: Cluster, log_file: Path | None, config: Path | None, services: str
) -> Iterator[Subject | None]:
    if cluster.endpoint is None:
        raise UsageError(
            f"subject {recipe.name!r} is a process, and cluster {cluster.name!r} can only be reached from inside this"
            " one; use --backend embedded"
        )
    own = config or (Path(recipe.config) if recipe.config else None)
    with (
        private_folder() as folder,
        companions(recipe, cluster, cluster.endpoint.kubeconfig, folder) as check,
        open_subject(
            recipe.scheduler.replace("{folder}", str(folder)),
            cluster,
            log_file=log_file,
            config=own,
            services=services or recipe.services,
        ) as subject,
    ):
        assert subject is not None
        subject.check_companions = check
        yield subject


def _plain(cluster: Cluster, folder: Path) -> Path | None:
    """A configuration with the default scheduler alone, where its name must be another one."""
    if cluster.scheduler_name(DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER:
        return None
    written = folder / "default-config.yaml"
    profiles = [{"schedulerName": DEFAULT_SCHEDULER}]
    written.write_text(yaml.safe_dump({"apiVersion": CONFIG_VERSION, "kind": KIND, "profiles": profiles}))
    return written


def _renamed(config: Path | None, cluster: Cluster, folder: Path) -> Path | None:
    """The configuration with the scheduler names that pods have on this cluster."""
    if config is None or cluster.scheduler_name(DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER:
        return config
    current_yaml = load_yaml(config.read_bytes())
    for profile in current_yaml.get("profiles") or ():
        profile["schedulerName"] = cluster.scheduler_name(profile.get("schedulerName") or DEFAULT_SCHEDULER)
    written = folder / "renamed-config.yaml"
    written.write_text(yaml.safe_dump(current_yaml))
    return written


def _for_this_run(config: Path | None, kubeconfig: Path, folder: Path) -> Path | None:
    if config is None:
        return None
    written = folder / "scheduler-config.yaml"
    written.write_text(yaml.safe_dump(completed(config, kubeconfig)))
    return written


__all__ = ["DEPLOYED", "IN_PROCESS", "NONE", "OURS", "Subject", "SubjectError", "is_foreign", "open_subject"]
