"""Another manager's webhooks: they ask nothing before it serves, and are required afterwards."""

import sys
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.subject.foreign_manager import PATH, configurations, running_foreign_manager
from seatrial.scheduler.api.transport import Request

MANAGER = """#!{python}
import json, os, socket, sys, time
from pathlib import Path
from seatrial.harness.clusters.kubeconfig import load_access

kubeconfig = next(word.partition("=")[2] for word in sys.argv if word.startswith("--kubeconfig="))
access = load_access(Path(kubeconfig))
pool = access.pool(connections=1)

quota = json.dumps({{"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota",
                     "metadata": {{"name": "early", "namespace": "default"}}, "spec": {{}}}})
quotas = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
headers = {{**access.headers, "Content-Type": "application/json"}}
answer = pool.request("POST", access.url + quotas, body=quota, headers=headers)
Path({seen!r}).write_text(str(answer.status))
server = socket.create_server(("127.0.0.1", int(os.environ["WEBHOOK_PORT"])))
for kind in ("mutating", "validating"):
    at = f"{{access.url}}{path}/{{kind}}webhookconfigurations/koordinator-{{kind}}-webhook-configuration"
    found = json.loads(pool.request("GET", at, headers=access.headers).data)
    for webhook in found["webhooks"]:
        place = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"]["url"] = f"https://127.0.0.1:{{os.environ['WEBHOOK_PORT']}}{{place}}"
    pool.request("PUT", at, body=json.dumps(found), headers=headers)
time.sleep(600)
"""


def policies(cluster: EmbeddedCluster) -> list[str]:
    webhooks: list[Any] = []
    for each in configurations():
        path = f"{PATH}/{each['kind'].lower()}s/{each['metadata']['name']}"
        webhooks += orjson.loads(cluster.call(Request("GET", path)).body)["webhooks"]
    return [webhook["failurePolicy"] for webhook in webhooks]


def test_a_quota_made_before_the_manager_serves_is_not_refused(tmp_path: Path) -> None:
    """A scheduler that starts meanwhile creates its root quota once, and would never try again."""
    manager, seen = tmp_path / "manager", tmp_path / "seen"
    manager.write_text(MANAGER.format(python=sys.executable, seen=str(seen), path=PATH))
    manager.chmod(0o755)
    with EmbeddedBackend(seed=1).start() as cluster, running_foreign_manager(cluster, str(manager)):
        assert seen.read_text() == "201"
        assert policies(cluster) == ["Fail", "Fail", "Ignore", *["Fail"] * 4]
