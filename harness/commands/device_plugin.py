"""`seatrial device-plugin`: a device plugin for kubelet whose containers get what the scheduler allocated."""

import asyncio
import logging
import platform
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from seatrial.harness.errors import UsageError


def device_plugin(
    *,
    kubeconfig: Path | None = None,
    node: str | None = None,
    kubelet_folder: Path = Path("/var/lib/kubelet"),
    fake: Annotated[str, Parameter(env_var="SEATRIAL_FAKE")] = "",
    report: bool = True,
    xpu_file: Path | None = None,
    dev_root: Path = Path("/"),
    dra: Annotated[bool, Parameter(negative="")] = False,
    dra_offer: Literal["whole", "partitions", "shares"] = "whole",
    cdi_folder: Path = Path("/var/run/cdi"),
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Register this machine's devices with its kubelet until Ctrl-C; run it as root on each node with devices.

    Containers get the devices that the scheduler wrote into their pod's annotation device-allocated, not those of
    the IDs that kubelet chose. A pod without that annotation is refused.

    Args:
        kubeconfig: Kubeconfig of the cluster; without it, the service account of the pod that this runs in.
        node: The node's name; by default the machine's own.
        kubelet_folder: Folder of kubelet's sockets.
        fake: Simulate the devices: a server of the catalogue, MODEL or MODEL:COUNT, as in dgx-h100 or a10:2. Their
            faults are those of the Node's annotation seatrial.dev/faults.
        report: Write the Device object, the Node's labels and koordinator.sh/gpu-memory, as Koordinator's agents do.
            Use --no-report beside them.
        xpu_file: Also keep koord-device-daemon's file for koordlet, as in /var/run/koordlet/xpu-device-infos/ic-device.
        dev_root: Folder that holds /dev.
        dra: Offer the devices in ResourceSlices and prepare ResourceClaims, in place of the device plugin and the
            Device object.
        dra_offer: With --dra, how cards are offered: as a whole; also the partitions that they can be cut into
            (vNPUs); or in shares of cores and memory, each an sMLU on MLUs.
        cdi_folder: With --dra, where the container runtime looks for files of the Container Device Interface.
        verbose: Log each allocation.
    """
    from seatrial.harness.clusters.access import access
    from seatrial.harness.deviceplugin.daemon import Options, serve

    if not kubelet_folder.is_dir():
        text = "a file" if kubelet_folder.exists() else "nothing"
        raise UsageError(f"--kubelet-folder {kubelet_folder}: expected the folder of a kubelet, found {text}")
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname).1s %(message)s")
    options = Options(
        node=node or platform.node(),
        kubelet=kubelet_folder,
        fake=fake,
        report=report,
        xpu_file=xpu_file,
        dev_root=dev_root,
        in_cluster=kubeconfig is None,
        dra=dra_offer if dra else None,
        cdi=cdi_folder,
    )
    asyncio.run(serve(options, access(kubeconfig), lambda: print(f"device plugin of {options.node}", flush=True)))
    return 0
