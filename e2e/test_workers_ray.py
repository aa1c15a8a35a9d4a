"""Engine ray on worker pods: one job, and all that may happen to it while it counts words."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from e2e.cluster.command import await_condition
from e2e.cluster.kubelets import kill_in_pod
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, build_job
from e2e.test_workers import (
    COUNT_WORDS,
    RAY_PATIENCE,
    ROTATION,
    await_ready,
    await_replaced,
    await_rounds,
    let_go,
    pods_of,
    read_keys,
    read_rounds,
    replace_keys,
    uids_of,
)
from fray.plan.environment import RAY_TOKEN_FILE
from fray.vocabulary import CONTAINER, POOL_DEMAND_CONTAINER, POOL_PORTS, Role

JOB = "ray"
PROGRAM = """
set -e
python3 -c "$1"
python3 -c "$2" 0.2
until test -e /tmp/end; do sleep 0.1; done
"""
"""Words of Ray; rounds of counting until let go; then nothing until told to end."""
OWN_WORDS = """
import ray
ray.init()
double = ray.remote(lambda number: 2 * number)
print("Ray says", sum(ray.get([double.remote(number) for number in range(5)])), flush=True)
"""
RANK_0 = {"cpu": "500m", "memory": "1Gi"}
"""Ray gives up its start after 30 s, and starts a dozen processes."""
WORKER = {"cpu": "200m", "memory": "512Mi"}
STRANGER = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).get_all_node_info()
    print("heard")
except Exception as error:
    known = ("InvalidAuthToken", "nauthenticated")
    print("refused" if any(word in str(error) for word in known) else error)
"""


def build_elastic(image: str) -> dict[str, Any]:
    """The job, whose workers come and go with its work."""
    workers = {"engine": "ray", "maxReplicas": 3, "idleSeconds": 30, "resources": WORKER}
    command = ["sh", "-c", PROGRAM, "program", OWN_WORDS, COUNT_WORDS]
    return build_job(JOB, command, resources=RANK_0, environment={"image": image}, workers=workers)


def run_in(jobs: JobNamespace, pod: dict[str, Any], *words: str) -> str:
    """What a command prints in the main container of a pod."""
    return jobs.kubectl("exec", pod["metadata"]["name"], f"--container={CONTAINER}", "--", *words)


def hostnames_of(jobs: JobNamespace) -> set[str]:
    """Those of the workers' pods that haven't ended."""
    return {pod["spec"]["hostname"] for pod in pods_of(jobs, JOB, Role.WORKER)}


def await_steady(jobs: JobNamespace) -> None:
    """Wait until three rounds in turn ran on all of the three workers that there are.

    While a round waits for tasks of a lost worker, the others idle, and may be let go. The first of the three
    may have been such a round, in the second the demand is seen again, and who was let go takes no task.
    """

    def is_steady() -> bool:
        there = hostnames_of(jobs)
        return len(there) == 3 and read_rounds(jobs, JOB)[-3:] == [there] * 3

    await_condition("all workers count", is_steady, timeout=RAY_PATIENCE, details=jobs.describe)


def restarts_of(jobs: JobNamespace, container: str) -> int:
    """How often a sidecar of rank 0 was started again."""
    (pod,) = pods_of(jobs, JOB, Role.HOST)
    (found,) = [one for one in pod["status"]["initContainerStatuses"] if one["name"] == container]
    return int(found["restartCount"])


def read_dashboard(jobs: JobNamespace, token: str) -> tuple[int, int]:
    """What Ray's dashboard answers to who has no token, and how many nodes at work it shows to who has it."""
    words, environ = jobs.fray("dashboard", JOB)
    command = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert command.stdout is not None
        url = f"{command.stdout.readline().strip()}/nodes?view=summary"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=RAY_PATIENCE)
        known = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(known, timeout=RAY_PATIENCE) as answer:
            nodes = json.load(answer)["data"]["summary"]
        refused.value.close()
        return refused.value.code, sum(node["raylet"]["state"] == "ALIVE" for node in nodes)
    finally:
        command.terminate()
        command.communicate(timeout=RAY_PATIENCE)


@pytest.mark.timeout(1800, func_only=True)
def test_ray_counts_on_while_workers_come_and_go_and_keys_are_replaced(
    jobs: JobNamespace, layout: Layout, engines_image: str
) -> None:
    jobs.submit(build_elastic(engines_image))
    await_ready(jobs, JOB, 3, seconds=RAY_PATIENCE)
    (rank_0,) = pods_of(jobs, JOB, Role.HOST)
    host = layout.host_named(rank_0["spec"]["nodeName"])
    evicted, killed, _ = pods_of(jobs, JOB, Role.WORKER)
    jobs.evict(evicted["metadata"]["name"])
    killed_on = layout.host_named(killed["spec"]["nodeName"])
    assert kill_in_pod(killed_on, killed["metadata"]["uid"], "fray.job.ray_pods")

    # What comes of both takes its time.
    place = f"{rank_0['status']['podIP']}:{POOL_PORTS[0]}"
    for token in ("RAY_AUTH_TOKEN=of-another-job-that-is-long-enough", "RAY_AUTH_MODE=disabled"):
        stranger = ("env", "--unset=RAY_AUTH_TOKEN_PATH", token, "python3", "-c", STRANGER, place)
        assert run_in(jobs, rank_0, *stranger) == "refused\n"
    code, shown = read_dashboard(jobs, run_in(jobs, rank_0, "cat", RAY_TOKEN_FILE))
    assert code == 401
    assert shown >= 2, "rank 0 and the worker that was kept; of the others it may not know yet"
    await_replaced(jobs, JOB, evicted, killed, count=3, seconds=RAY_PATIENCE)
    await_steady(jobs)

    # All goes on with the keys that the attempt began with.
    before, workers = read_keys(jobs), uids_of(jobs, JOB)
    for step in ROTATION:
        replace_keys(jobs, step, JOB)
        await_rounds(jobs, JOB)
    assert not set(read_keys(jobs).accepted) & set(before.accepted)
    assert kill_in_pod(host, rank_0["metadata"]["uid"], "fray.job.ray_pods\0demand")
    await_condition(
        "who asks for workers was started again",
        lambda: restarts_of(jobs, POOL_DEMAND_CONTAINER) == 1,
        timeout=RAY_PATIENCE,
        details=jobs.describe,
    )
    await_rounds(jobs, JOB)
    assert uids_of(jobs, JOB) == workers
    let_go(jobs, JOB)
    await_ready(jobs, JOB, 0, seconds=RAY_PATIENCE)
    run_in(jobs, rank_0, "touch", "/tmp/end")
    status = jobs.await_end(JOB)
    assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
    assert pods_of(jobs, JOB, Role.WORKER) == []
    # More of Ray's may stand behind it.
    told = jobs.logs(JOB)[0].splitlines()
    assert "Ray says 20" in told
    (counted,) = [line for line in told if line.startswith('{"rounds"')]
    answer = json.loads(counted)
    assert (answer["wrong"], answer["rounds"] > 1) == (0, True)
