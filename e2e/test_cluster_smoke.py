"""The cluster itself works: JobSet places real pods on imitated TPU pools, and they reach each other.

Run on a cluster that is up (`python -m e2e.cluster up`); nothing of Fray is involved.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster import provider
from e2e.cluster.addons import describe_pods
from e2e.cluster.api import Api
from e2e.cluster.command import await_condition
from e2e.cluster.images import BUSYBOX_IMAGE
from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.paths import KUBECONFIG

_POOL = "cloud.google.com/gke-nodepool"
_SLICES = 2
_HOSTS_PER_SLICE = 2
_TIMEOUT = 120.0

# Serves its own name, then asks every pod of the JobSet for its name until all have answered.
_SCRIPT = """
mkdir /tmp/www && hostname > /tmp/www/index.html && httpd -p 8080 -h /tmp/www
for peer in $PEERS; do
    until answer=$(timeout 2 wget -q -O - http://$peer.$SUBDOMAIN:8080/); do sleep 0.2; done
    test "$answer" = "$peer" || exit 1
done
echo all peers answered
exec sleep 3600
"""


@pytest.fixture(scope="module")
def api() -> Api:
    """A client of the cluster that is up."""
    return provider.connect()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace that is empty at first and gone afterwards."""
    name = f"smoke-{uuid.uuid4().hex[:8]}"
    assert api.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    await_condition(
        "the default account exists",
        lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").ok,
        timeout=_TIMEOUT,
    )
    yield name
    api.delete(f"/api/v1/namespaces/{name}")
    await_condition(
        f"namespace {name} is gone",
        lambda: api.get(f"/api/v1/namespaces/{name}").status == 404,
        timeout=_TIMEOUT,
    )


def list_pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    """All pods of a namespace."""
    pods: list[dict[str, Any]] = api.get(f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return pods


def build_jobset(name: str) -> dict[str, Any]:
    """Two v5p-16 slices, each alone in a node pool, one pod per host with all four chips."""
    peers = [f"{name}-slice-{i}-{j}" for i in range(_SLICES) for j in range(_HOSTS_PER_SLICE)]
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _SCRIPT],
        "env": [{"name": "PEERS", "value": " ".join(peers)}, {"name": "SUBDOMAIN", "value": name}],
        "resources": {"limits": {"google.com/tpu": 4}},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
            "cloud.google.com/gke-tpu-topology": "2x2x2",
        },
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        "containers": [container],
    }
    job = {
        "parallelism": _HOSTS_PER_SLICE,
        "completions": _HOSTS_PER_SLICE,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": _POOL},
        },
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": _SLICES, "template": {"spec": job}}]},
    }


def test_each_slice_gets_a_pool_of_its_own_and_pods_reach_each_other_by_name(
    api: Api, namespace: str
) -> None:
    """Two slices of two hosts: one pool each, one pod per host, all names resolve and all pods answer."""
    jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
    answer = api.post(jobsets, build_jobset("train"))
    assert answer.status == 201, answer.body

    def logs() -> list[str]:
        names = [pod["metadata"]["name"] for pod in list_pods(api, namespace)]
        answers = [api.get(f"/api/v1/namespaces/{namespace}/pods/{name}/log") for name in names]
        return [str(answer.body) if answer.ok else "" for answer in answers]

    await_condition(
        "every pod was answered by all others",
        lambda: (
            [log.endswith("all peers answered\n") for log in logs()] == [True] * _SLICES * _HOSTS_PER_SLICE
        ),
        timeout=_TIMEOUT,
        details=lambda: "\n".join([*logs(), describe_pods(api, namespace)]),
    )
    pool_of = {host.name: host.labels[_POOL] for host in provider.current_layout().hosts}
    placed: dict[str, list[str]] = {}
    for pod in list_pods(api, namespace):
        index = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        placed.setdefault(index, []).append(pod["spec"]["nodeName"])
    assert all(len(set(nodes)) == _HOSTS_PER_SLICE for nodes in placed.values()), placed
    pools = {index: {pool_of[name] for name in nodes} for index, nodes in placed.items()}
    assert sorted(map(sorted, pools.values())) == [["tpu-a"], ["tpu-b"]]


def test_a_pod_without_toleration_stays_off_the_chips(api: Api, namespace: str) -> None:
    """The taint of the TPU nodes is real."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["true"]}
    pod = {"metadata": {"name": "plain"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    assert api.post(pods, pod).status == 201
    await_condition(
        "the pod succeeded",
        lambda: api.get(f"{pods}/plain").body["status"]["phase"] == "Succeeded",
        timeout=_TIMEOUT,
        details=lambda: str(api.get(f"{pods}/plain").body["status"]),
    )
    tainted = {host.name for host in provider.current_layout().hosts if host.taints}
    assert api.get(f"{pods}/plain").body["spec"]["nodeName"] not in tainted


def test_a_crashed_host_is_noticed_and_comes_back_with_its_chips(api: Api) -> None:
    """Every process of a host ends at once, as in a power failure; later it is the same node again."""
    host = next(host for host in provider.current_layout().hosts if host.labels.get(_POOL) == "tpu-b")

    def ready() -> str:
        conditions = api.get(f"/api/v1/nodes/{host.name}").body["status"]["conditions"]
        return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

    provider.crash_host(host)
    try:
        await_condition(f"{host.name} is not Ready", lambda: ready() != "True", timeout=_TIMEOUT)
    finally:
        provider.restore_host(host)
    assert ready() == "True"
    assert api.get(f"/api/v1/nodes/{host.name}").body["status"]["allocatable"]["google.com/tpu"] == "4"


def test_the_kubeconfig_names_the_context_that_tests_accept() -> None:
    """Another name would make every other test refuse this cluster."""
    assert yaml.safe_load(KUBECONFIG.read_text())["current-context"] == CONTEXT
