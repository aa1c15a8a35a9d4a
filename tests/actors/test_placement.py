"""What a creator asks for is what the pods of its actor get."""

from __future__ import annotations

from typing import Any

import pytest

from fray.job import ActorOptions, JobContext
from fray.plan.actor_set import build_actor_set
from fray.plan.settings import PlanSettings
from fray.wire.frayactor import FRAYACTOR, FrayActor
from fray.wire.validation import validate_object
from tests.actors import programs
from tests.actors.cluster import Cluster

SPOT = "cloud.google.com/gke-spot"


@pytest.mark.parametrize(
    ("options", "resources", "preemptible"),
    [
        ({}, {}, True),
        ({"num_cpus": 0}, {}, True),
        ({"num_cpus": 2}, {"cpu": "2"}, True),
        ({"num_cpus": 0.5}, {"cpu": "0.500"}, True),
        # Next to nothing, and less than Kubernetes counts.
        ({"num_cpus": 0.0001}, {"cpu": "0.001"}, True),
        ({"preemptible": True}, {}, True),
        ({"preemptible": False}, {}, False),
        ({"preemptible": False, "num_cpus": 0}, {}, False),
        ({"options": ActorOptions(resources={"memory": 4_000_000})}, {"memory": "4000000"}, True),
        ({"options": ActorOptions(resources={"CPU": 8}), "num_cpus": 0}, {}, True),
    ],
    ids=str,
)
def test_pods_of_an_actor_ask_for_what_its_creator_asked_for(
    cluster: Cluster,
    context: JobContext,
    options: dict[str, Any],
    resources: dict[str, str],
    *,
    preemptible: bool,
) -> None:
    context.create_actor(programs.Counter, name="counter", **options)
    made = cluster.actor("counter")
    spec = made["spec"]
    body = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"name": "counter"}}
    validate_object({**body, "spec": spec}, FRAYACTOR)
    assert spec.get("placement", {"preemptible": True}) == {"preemptible": preemptible}
    assert spec.get("resources", {}) == resources

    members = build_actor_set(FrayActor.from_manifest(made), replicas=1, settings=PlanSettings())
    pods = members["spec"]["template"]["spec"]
    spot = [toleration for toleration in pods.get("tolerations", ()) if toleration["key"] == SPOT]
    assert bool(spot) is preemptible
    assert (SPOT in str(pods.get("affinity"))) is not preemptible
    assert pods["containers"][0].get("resources", {}).get("requests", {}) == resources
