"""The process of a live page (`--web`): a socket of the loopback address, and a file with its address and token."""

import secrets
import subprocess
from pathlib import Path

from seatrial.harness.commands.up_scheduler import spawn
from seatrial.harness.processes import program
from seatrial.harness.subject.services import listening_socket
from seatrial.scheduler.api.private_files import write_private

WEB = "web"  # name of the component


def start_page(words: list[str], address_file: Path, log: Path, *, stays: bool = False) -> "subprocess.Popen[bytes]":
    """Start the page; its address, which has a random token, is in `address_file`, of mode 0600.

    `words`: `cluster NAME` or `run FOLDER`. With `stays` it outlives this process.
    """
    listening, url = listening_socket()
    write_private(address_file, f"{url}/{secrets.token_urlsafe(32)}/".encode())
    command = [*program("seatrial.reports.live"), *words, "--address-file", str(address_file)]
    return spawn(command, log, listening, stays=stays)
