"""A FrayActor on a cluster: its member serves, is started again, and leaves nothing."""

from __future__ import annotations

from typing import Any

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace
from fray.vocabulary import API_VERSION, FRAYACTOR_KIND, LABEL_ACTOR

ACTOR_SECONDS = 180.0


def build_actor(name: str, path: str, **spec: Any) -> dict[str, Any]:
    """A FrayActor of a class that every image has."""
    return {
        "apiVersion": API_VERSION,
        "kind": FRAYACTOR_KIND,
        "metadata": {"name": name},
        "spec": {"name": name, "entrypoint": {"class": path}, **spec},
    }


def get_member(jobs: JobNamespace, name: str) -> dict[str, Any]:
    """The only member of an actor, as the status has it; empty before the first status."""
    members = jobs.kubectl.get("frayactor", name).get("status", {}).get("members") or [{}]
    found: dict[str, Any] = members[0]
    return found


def await_member(jobs: JobNamespace, name: str, what: str, **fields: Any) -> dict[str, Any]:
    """Wait until the only member of an actor has these fields in the status."""

    def has_them() -> bool:
        return fields.items() <= get_member(jobs, name).items()

    await_condition(
        f"{name} {what}", has_them, timeout=ACTOR_SECONDS, details=lambda: str(get_member(jobs, name))
    )
    return get_member(jobs, name)


def test_a_class_of_the_image_is_served_restarted_replaced_and_removed(jobs: JobNamespace) -> None:
    jobs.submit(build_actor("counter", "collections:Counter"))
    jobs.kubectl.wait("frayactor/counter", "condition=Ready", seconds=ACTOR_SECONDS)
    first = await_member(jobs, "counter", "tells of its first start", startNumber=1, ready=True)
    assert first["address"]
    # The actor's process ends; its pod doesn't.
    kill = (
        "import os, signal; [os.kill(int(p), 9) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1"
        " and int(p) != os.getpid()]"
    )
    jobs.kubectl("exec", "counter-0", "--container=main", "--", "python3", "-c", kill)
    second = await_member(jobs, "counter", "was started again", startNumber=2, ready=True, restarts=1)
    assert second["podUid"] == first["podUid"]
    # The pod is lost.
    jobs.kubectl("delete", "pod", "counter-0", "--wait=false")
    third = await_member(jobs, "counter", "has another pod", startNumber=1, ready=True, restarts=2)
    assert third["podUid"] != first["podUid"]
    jobs.kubectl("delete", "frayactor", "counter")
    left = f"--selector={LABEL_ACTOR}=counter"
    await_condition(
        "nothing is left of it",
        lambda: not any(jobs.kubectl.items(kind, left) for kind in ("pods", "statefulsets", "configmaps")),
        timeout=ACTOR_SECONDS,
    )


def test_a_constructor_that_fails_is_told(jobs: JobNamespace) -> None:
    jobs.submit(build_actor("broken", "fractions:Fraction", maxRestarts=0, replicas=1))
    jobs.kubectl.wait("frayactor/broken", "condition=Ready", seconds=ACTOR_SECONDS)
    jobs.submit(build_actor("missing", "collections:NoSuchClass", maxRestarts=1))
    member = await_member(jobs, "missing", "is given up", failed=True)
    assert not member["ready"]
    assert "NoSuchClass" in member["lastError"]["message"]
