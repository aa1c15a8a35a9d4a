"""A FrayActor on a cluster: its member serves, is started again, and leaves nothing."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace
from e2e.test_actors_of_jobs import SMALL, connect
from fray.cluster import create_environment
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


def list_pods(jobs: JobNamespace, name: str) -> list[dict[str, Any]]:
    """The pods of an actor."""
    return jobs.kubectl.items("pods", f"--selector={LABEL_ACTOR}={name}")


def call(jobs: JobNamespace, name: str, method: str, arguments: str) -> str:
    """Call an actor from this machine, as JSON, which says nothing but what it returns."""
    words, environ = jobs.fray("actors", "call", name, method, arguments)
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, check=False, timeout=ACTOR_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def await_gone(jobs: JobNamespace, name: str, *kinds: str) -> None:
    """Wait until none of these objects of an actor is left."""
    await_condition(
        f"nothing is left of {name}",
        lambda: not any(jobs.kubectl.items(kind, f"--selector={LABEL_ACTOR}={name}") for kind in kinds),
        timeout=ACTOR_SECONDS,
    )


def test_a_class_of_the_image_is_served_restarted_replaced_and_removed(jobs: JobNamespace) -> None:
    jobs.submit(build_actor("counter", "collections:Counter"))
    jobs.kubectl.wait("frayactor/counter", "condition=Ready", seconds=ACTOR_SECONDS)
    first = await_member(jobs, "counter", "tells of its first start", startNumber=1, ready=True)
    assert first["address"]
    assert call(jobs, "counter", "total", "[]") == "0"
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
    assert jobs.kubectl.items("networkpolicies", f"--selector={LABEL_ACTOR}=counter")
    jobs.kubectl("delete", "frayactor", "counter")
    await_gone(jobs, "counter", "pods", "statefulsets", "configmaps", "networkpolicies")


def test_the_secrets_of_a_pickled_class_go_with_its_actor(jobs: JobNamespace, tmp_path: Path) -> None:
    with connect(jobs) as cluster:
        environment = create_environment(tmp_path)
        counter = cluster.create_actor(
            Counter, "aab", name="pickled", resources=SMALL, environment=environment
        )
        assert counter.total.remote().result(ACTOR_SECONDS) == 3
        actor = cluster.find_actor("pickled").metadata

    def list_secrets() -> list[str]:
        return [
            secret["metadata"]["name"]
            for secret in jobs.kubectl.items("secrets")
            for owner in secret["metadata"].get("ownerReferences", ())
            if owner["uid"] == actor.uid
        ]

    assert list_secrets()
    jobs.kubectl("delete", "frayactor", actor.name)
    await_gone(jobs, actor.name, "pods", "statefulsets", "configmaps", "networkpolicies")
    await_condition("its Secrets are gone", lambda: not list_secrets(), timeout=ACTOR_SECONDS)


def test_a_constructor_that_fails_is_told(jobs: JobNamespace) -> None:
    jobs.submit(build_actor("broken", "fractions:Fraction", maxRestarts=0, replicas=1))
    jobs.kubectl.wait("frayactor/broken", "condition=Ready", seconds=ACTOR_SECONDS)
    jobs.submit(build_actor("missing", "collections:NoSuchClass", maxRestarts=1))
    member = await_member(jobs, "missing", "is given up", failed=True)
    assert not member["ready"]
    assert "NoSuchClass" in member["lastError"]["message"]


def test_actors_whose_pods_can_not_be_made_say_why_and_get_them_later(jobs: JobNamespace) -> None:
    jobs.kubectl("delete", "serviceaccount", "fray-job")
    jobs.submit(build_actor("counter", "collections:Counter"))
    tpu = {"resources": {"tpu": {"type": "v5p-16"}}, "environment": {"image": "fray-digits:0.1.0"}}
    jobs.submit(build_actor("sliced", "collections:Counter", **tpu))

    def all_say_why() -> bool:
        told = [get_member(jobs, name).get("message", "") for name in ("counter", "sliced")]
        return all('serviceaccount "fray-job" not found' in message for message in told)

    await_condition("both say why they have no pods", all_say_why, timeout=ACTOR_SECONDS)
    jobs.kubectl("create", "serviceaccount", "fray-job")
    for name in ("counter", "sliced"):
        jobs.kubectl.wait(f"frayactor/{name}", "condition=Ready", seconds=ACTOR_SECONDS)
        assert "message" not in get_member(jobs, name)


def test_a_slice_of_several_hosts_is_one_member_that_starts_anew_on_all_of_them(jobs: JobNamespace) -> None:
    image = {"image": "fray-digits:0.1.0"}  # which TPU hosts have
    tpu = {"tpu": {"type": "v5p-16"}}
    jobs.submit(build_actor("sliced", "collections:Counter", resources=tpu, environment=image))
    jobs.kubectl.wait("frayactor/sliced", "condition=Ready", seconds=ACTOR_SECONDS)
    first, pods = get_member(jobs, "sliced"), list_pods(jobs, "sliced")
    assert len(pods) == len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert call(jobs, "sliced", "update", '["aab"]') == "null"
    assert call(jobs, "sliced", "total", "[]") == "3"
    # The host is lost that no caller reaches.
    other = next(pod for pod in pods if pod["metadata"]["uid"] != first["podUid"])
    jobs.kubectl("delete", "pod", other["metadata"]["name"], "--wait=false")
    second = await_member(jobs, "sliced", "runs again", attempt=2, ready=True, restarts=1)
    assert second["podUid"] not in {pod["metadata"]["uid"] for pod in pods}
    assert call(jobs, "sliced", "total", "[]") == "0"
    jobs.kubectl("delete", "frayactor", "sliced")
    await_gone(jobs, "sliced", "pods", "jobsets", "configmaps", "networkpolicies")
