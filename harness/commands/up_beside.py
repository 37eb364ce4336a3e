"""The manager and the descheduler that `seatrial up --with` starts beside the scheduler."""

import sys
from collections.abc import Collection
from pathlib import Path

from seatrial.harness.errors import UsageError

PROGRAMS = {"manager": "seatrial.scheduler.manager", "descheduler": "seatrial.scheduler.descheduler"}
DEFAULT_CONFIG = Path(__file__).with_name("descheduler.yaml")


def beside(target: str, config: Path | None, kubeconfig: Path) -> dict[str, list[str]]:
    """The command lines of the programs in `target`, a list with commas; `config`: the descheduler's, None for ours.

    Raises:
        UsageError: a program is not known, or the configuration cannot be used.
    """
    names = [name.strip() for name in target.split(",") if name.strip()]
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise UsageError(f"--with {unknown[0]}: expected {' or '.join(PROGRAMS)}, or both with a comma between them")
    if config is not None:
        if "descheduler" not in names:
            raise UsageError(f"--descheduler-config {config}: no descheduler is started; add --with descheduler")
        from seatrial.harness.subject.descheduler import check_file

        check_file(config)
    options = {
        "manager": ["--feature-gates", "EnableSyncGPUSharedResource=true"],  # as simulated nodes report
        "descheduler": ["--config", str((config or DEFAULT_CONFIG).resolve())],
    }
    return {
        name: [sys.executable, "-m", module, "--kubeconfig", str(kubeconfig), "--port", "0", *options.get(name, ())]
        for name, module in PROGRAMS.items()
        if name in names
    }


def names_in(components: Collection[str]) -> list[str]:
    """Those of a cluster's components that `--with` started."""
    return [name for name in PROGRAMS if name in components]
