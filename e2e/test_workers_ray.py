"""Engine ray on worker pods: one job of the example, and all that may happen to it while it counts words."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.command import await_condition
from e2e.cluster.errors import CommandError
from e2e.cluster.kubelets import kill_in_pod
from e2e.cluster.layout import Layout
from e2e.images import TEST_IMAGES
from e2e.installation import load_images
from e2e.job_namespace import JobNamespace
from e2e.test_workers import (
    COUNT_WORDS,
    OFFLINE,
    WORD_COUNT,
    await_ready,
    let_go,
    pods_of,
)
from fray.plan.environment import RAY_TOKEN_FILE
from fray.vocabulary import CONTAINER, POOL_DEMAND_CONTAINER, POOL_PORTS, Role
from tools.images import project_version

PATIENCE = 600.0
"""Ray starts a dozen processes in each of four pods: on a busy machine that takes minutes."""
JOB = "ray"
IMAGE = f"fray-ray:{project_version()}"
PROGRAM = """
set -e
python3 wordcount.py --context sync
python3 wordcount.py
python3 -c "$1"
python3 -c "$2" 0.2
until test -e /tmp/end; do sleep 0.1; done
"""
"""The example without workers, and with them; words of Ray; rounds of it until told to end; then nothing."""
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


@pytest.fixture(scope="module", autouse=True)
def _image(layout: Layout, progress: Callable[[str], None]) -> None:
    """The image with Ray, on the hosts."""
    load_images(layout, progress, TEST_IMAGES)


def start(jobs: JobNamespace, folder: Path) -> None:
    """Start the example, with as many workers as there is work for: none at first."""
    shutil.copytree(WORD_COUNT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    job = yaml.safe_load((folder / "workers.yaml").read_text(encoding="utf-8"))
    spec = job["spec"]
    spec["entrypoint"]["command"] = ["sh", "-c", PROGRAM, "sh", OWN_WORDS, COUNT_WORDS]
    spec["environment"] |= {"image": IMAGE, "pipPackages": ["rich", "ray[default]"], "env": OFFLINE}
    spec["resources"] = RANK_0
    spec["workers"] = {"engine": "ray", "maxReplicas": 3, "idleSeconds": 10, "resources": WORKER}
    path = folder / "ray.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    words, environ = jobs.fray("run", "--detach", f"--file={path}", f"--name={JOB}")
    subprocess.run(words, env=environ, check=True, timeout=PATIENCE)


def run_in(jobs: JobNamespace, pod: dict[str, Any], *words: str) -> str:
    """What a command prints in the main container of a pod."""
    return jobs.kubectl("exec", pod["metadata"]["name"], f"--container={CONTAINER}", "--", *words)


def read_log(jobs: JobNamespace) -> str:
    """What rank 0 has printed so far."""
    try:
        (log,) = jobs.logs(JOB)
    except (CommandError, ValueError):  # its container hasn't started yet
        return ""
    return log


def read_tables(log: str) -> list[str]:
    """The tables that the example has printed."""
    tables = log.split(" word ")[1:]
    return [table.partition(" files: ")[0] for table in tables if " files: " in table]


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
            urllib.request.urlopen(url, timeout=PATIENCE)
        known = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(known, timeout=PATIENCE) as answer:
            nodes = json.load(answer)["data"]["summary"]
        return refused.value.code, sum(node["raylet"]["state"] == "ALIVE" for node in nodes)
    finally:
        command.terminate()
        command.communicate(timeout=PATIENCE)


@pytest.mark.timeout(1800, func_only=True)
def test_the_example_counts_on_ray_as_without_it_while_workers_come_and_go(
    jobs: JobNamespace, layout: Layout, tmp_path: Path
) -> None:
    start(jobs, tmp_path / "wordcount")
    await_condition(
        "it has counted twice, and Ray has said its own words",
        lambda: "Ray says 20\n" in read_log(jobs),
        timeout=PATIENCE,
        details=jobs.describe,
    )
    alone, on_ray = read_tables(read_log(jobs))
    assert alone == on_ray != ""
    jobs.await_workers(JOB, "3 are ready", lambda told: told.get("ready") == 3)

    (rank_0,) = pods_of(jobs, JOB, Role.HOST)
    host = layout.host_named(rank_0["spec"]["nodeName"])
    lost, *_ = pods_of(jobs, JOB, Role.WORKER)
    lost_host = layout.host_named(lost["spec"]["nodeName"])
    assert kill_in_pod(lost_host, lost["metadata"]["uid"], "fray.job.ray_pods")
    assert kill_in_pod(host, rank_0["metadata"]["uid"], "fray.job.ray_pods\0demand")

    # What comes of both takes its time.
    place = f"{rank_0['status']['podIP']}:{POOL_PORTS[0]}"
    for token in ("RAY_AUTH_TOKEN=of-another-job-that-is-long-enough", "RAY_AUTH_MODE=disabled"):
        stranger = ("env", "--unset=RAY_AUTH_TOKEN_PATH", token, "python3", "-c", STRANGER, place)
        assert run_in(jobs, rank_0, *stranger) == "refused\n"
    code, shown = read_dashboard(jobs, run_in(jobs, rank_0, "cat", RAY_TOKEN_FILE))
    assert code == 401
    assert shown >= 3, "rank 0 and two workers; the lost one is dead, or nobody has missed it yet"

    def is_as_before() -> bool:
        workers = {pod["metadata"]["uid"] for pod in pods_of(jobs, JOB, Role.WORKER)}
        replaced = jobs.workers(JOB).get("ready") == 3 and lost["metadata"]["uid"] not in workers
        return replaced and restarts_of(jobs, POOL_DEMAND_CONTAINER) == 1

    await_condition(
        "the lost worker is replaced, and who asks for workers was started again",
        is_as_before,
        timeout=PATIENCE,
        details=jobs.describe,
    )
    let_go(jobs, JOB)
    await_ready(jobs, JOB, 0)
    run_in(jobs, rank_0, "touch", "/tmp/end")
    status = jobs.await_end(JOB)
    assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
    assert pods_of(jobs, JOB, Role.WORKER) == []
    # More of Ray's may stand behind it.
    (counted,) = [line for line in read_log(jobs).splitlines() if line.startswith('{"rounds"')]
    answer = json.loads(counted)
    assert (answer["wrong"], answer["rounds"] > 1) == (0, True)
