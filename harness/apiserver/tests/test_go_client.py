"""client-go, unchanged: what Go controllers do, with all bodies and responses in protocol buffers.

Building the program needs Go and its module proxy, so that is done beforehand:

    cd harness/apiserver/tests/goclient && go build -o /tmp/goclient . && export SEATRIAL_GO_CLIENT=/tmp/goclient
"""

import os
import subprocess

import pytest

from seatrial.harness.clusters.embedded import EmbeddedCluster

BINARY = "SEATRIAL_GO_CLIENT"


def test_client_go(embedded: EmbeddedCluster) -> None:
    binary = os.environ.get(BINARY)
    if not binary:
        pytest.skip(f"{BINARY}: expected the path of the built program, found nothing; see the head of this file")
    assert embedded.endpoint is not None
    done = subprocess.run(
        [binary],
        env={**os.environ, "KUBECONFIG": str(embedded.endpoint.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed: delete namespace" in done.stdout
