"""FrayActors that programs outside of jobs create: what they asked for is what stands in the resource."""

from __future__ import annotations

from fray.cluster.kubernetes.actor_creation import build_actor
from fray.job.options import ActorOptions
from fray.testing import build_frayjob
from fray.wire.frayactor import FRAYACTOR
from fray.wire.validation import validate_object

CALLABLE = {"secretName": "counter", "sha256": "0" * 64, "python": "3.11"}


def test_all_options_stand_in_the_resource() -> None:
    job = build_frayjob("counter", entrypoint={"callable": CALLABLE}, environment={"image": "train:1"})
    options = ActorOptions(max_concurrency=2, max_restarts=3, max_task_retries=4, idle_timeout=1.5)
    body = build_actor("lab/counter", job, options, 5).to_manifest()
    validate_object(body, FRAYACTOR)
    assert body["spec"] == {
        "name": "lab/counter",
        "lifetime": "detached",
        "replicas": 5,
        "entrypoint": {"callable": CALLABLE},
        "environment": {"image": "train:1"},
        "maxConcurrency": 2,
        "maxRestarts": 3,
        "maxTaskRetries": 4,
        "idleSeconds": 2,
    }


def test_the_hosts_and_the_account_of_the_request_stand_in_the_resource() -> None:
    spec = {
        "placement": {"preemptible": False, "zones": ["us-central1-a"]},
        "resources": {"cpu": "500m", "memory": "1Gi", "gpu": {"type": "nvidia-l4", "count": 1}},
        "serviceAccountName": "trainer",
    }
    job = build_frayjob("counter", entrypoint={"callable": CALLABLE}, **spec)
    body = build_actor("counter", job, ActorOptions(), 1).to_manifest()
    validate_object(body, FRAYACTOR)
    assert {field: body["spec"].get(field) for field in spec} == spec
