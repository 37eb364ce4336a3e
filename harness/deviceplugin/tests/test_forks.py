"""A process that serves gRPC starts other programs, as backends and tests do."""

import subprocess
import sys

# Calls run in two threads while forty programs are started with a function that runs before exec, which needs a fork.
SERVES_AND_STARTS = """
import os, subprocess, threading
from concurrent import futures
import seatrial.harness.deviceplugin
import grpc

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

def calls():
    while True:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((Echo(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for _ in range(20):
                channel.unary_unary("/a/b")(b"x")
        server.stop(None).wait()

for _ in range(2):
    threading.Thread(target=calls, daemon=True).start()
codes = {subprocess.run(["/bin/true"], preexec_fn=lambda: None).returncode for _ in range(40)}
print(codes, flush=True)
os._exit(0)
"""


def test_other_programs_can_be_started_while_calls_run() -> None:
    """Without the setting of `harness.deviceplugin` the process hangs or aborts in most runs."""
    done = subprocess.run(
        [sys.executable, "-c", SERVES_AND_STARTS], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "{0}\n"), done.stderr
