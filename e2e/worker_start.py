"""`python -m e2e.worker_start`: how soon workers of a FrayJob give results. Prints JSON and judges nothing.

`job`: seconds from the creation of a FrayJob with three workers until each has given its first result.
`job_ray`: the same with workers of engine ray, in an image that has Ray.
`bare`: from the creation of three bare pods of the same image until each has run a line of Python.
`container`: from the start of a worker's container until its first task.
`lost_head`: from the end of the head's process until the program of rank 0 gets the error.
All processes are on this machine and share its clock. Brings up the cluster and installs the chart when they
are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import provider
from e2e.cluster.command import await_condition
from e2e.cluster.kubelets import kill_in_pod
from e2e.cluster.layout import Layout
from e2e.images import ENGINES_IMAGE, TEST_IMAGES
from e2e.installation import install_release, print_measured, say
from e2e.job_namespace import JobNamespace, build_job, open_job_namespace

__all__ = [
    "find_image",
    "main",
    "measure_bare",
    "measure_job",
    "measure_lost_head",
    "measure_ray",
    "run_program",
]

WORKERS = 3
SMALL = {"cpu": "100m", "memory": "128Mi"}
RANK_0_OF_RAY = {"cpu": "500m", "memory": "1Gi"}
WORKER_OF_RAY = {"cpu": "200m", "memory": "512Mi"}
"""Ray starts a dozen processes in each pod."""
SECONDS = 300.0
GOALS = {"job_more_than_bare_seconds": 1.5, "container_p95_seconds": 2.0, "lost_head_seconds": 10.0}
PRINT_TIME = "import time; print(time.time())"
FIRST_RESULTS = f"""
import json, socket, time
from pathlib import Path
from fray.job import get_default_job_ctx

def look():
    time.sleep(0.02)
    now, up = time.time(), float(Path("/proc/uptime").read_text().split()[0])
    # proc_pid_stat(5): the start of the container's first process since boot, in ticks.
    begun = int(Path("/proc/1/stat").read_text().rpartition(") ")[2].split()[19]) / 100
    return socket.gethostname(), now, now - (up - begun)

ctx, first = get_default_job_ctx(), {{}}
while len(first) < {WORKERS}:
    for host, now, begun in ctx.get([ctx.run(look) for _ in range(2 * {WORKERS})]):
        first.setdefault(host, (now, begun))
print(json.dumps(list(first.values())))
"""
UNTIL_LOST = """
import time
from fray.errors import PoolClosedError
from fray.job import get_default_job_ctx

ctx = get_default_job_ctx()
try:
    while True:
        ctx.get(ctx.run(time.sleep, 0.05))
        print("goes on", flush=True)
except PoolClosedError:
    print(time.time(), flush=True)
"""


def measure_job(space: JobNamespace, name: str) -> tuple[float, list[float]]:
    """Return the seconds to the last worker's first result, and of each since its container's start."""
    created = time.time()
    first = run_program(space, name, FIRST_RESULTS, replicas=WORKERS)
    return max(now for now, _ in first) - created, [now - begun for now, begun in first]


def measure_ray(space: JobNamespace, name: str) -> float:
    """Return the seconds from the creation of a job of engine ray to its last worker's first result."""
    command = ["python3", "-c", FIRST_RESULTS]
    workers = {"replicas": WORKERS, "engine": "ray", "resources": WORKER_OF_RAY}
    environment = {"image": ENGINES_IMAGE}
    job = build_job(name, command, resources=RANK_0_OF_RAY, environment=environment, workers=workers)
    created = time.time()
    space.run(job, seconds=SECONDS)
    # Words of Ray's stand before it, and may stand behind it.
    (told,) = [line for line in space.logs(name)[0].splitlines() if line.startswith("[[")]
    return float(max(now for now, _ in json.loads(told))) - created


def run_program(space: JobNamespace, name: str, program: str, **workers: Any) -> Any:
    """Run a program as a job with small workers; return what its last line says, which is JSON."""
    command = ["python3", "-c", program]
    job = build_job(name, command, resources=SMALL, workers={**workers, "resources": SMALL})
    space.run(job, seconds=SECONDS)
    return json.loads(space.logs(name)[0].splitlines()[-1])


def measure_bare(space: JobNamespace, name: str, image: str, count: int = WORKERS) -> float:
    """Return the seconds until the last of so many bare pods has run."""
    names = [f"{name}-{number}" for number in range(count)]
    pods = [_build_pod(each, image) for each in names]
    created = time.time()
    space.kubectl.apply(*pods)

    def have_ended() -> bool:
        found = space.kubectl.items("pods")
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in found}
        return all(phases.get(each) == "Succeeded" for each in names)

    await_condition("the bare pods have ended", have_ended, timeout=SECONDS, details=space.describe)
    return max(float(space.kubectl("logs", each)) for each in names) - created


def measure_lost_head(space: JobNamespace, name: str, layout: Layout) -> float:
    """Return the seconds from the end of the head's process until a program that calls it has its error."""
    workers = {"replicas": 1, "resources": SMALL}
    space.submit(build_job(name, ["python3", "-c", UNTIL_LOST], resources=SMALL, workers=workers))
    await_condition(
        "tasks run",
        lambda: any("goes on" in log for log in space.logs(name)) if _has_begun(space, name) else False,
        timeout=SECONDS,
        details=space.describe,
    )
    (pod,) = space.pods(name)
    killed = time.time()
    kill_in_pod(layout.host_named(pod["spec"]["nodeName"]), pod["metadata"]["uid"], "pool.head_pod")
    space.await_end(name, seconds=SECONDS)
    return float(space.logs(name)[0].splitlines()[-1]) - killed


def _has_begun(space: JobNamespace, job: str) -> bool:
    return bool(space.job(job).get("status", {}).get("replicas", {}).get("running"))


def _build_pod(name: str, image: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", PRINT_TIME],
        "resources": {"requests": SMALL},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def find_image(space: JobNamespace, job: str) -> str:
    """Return the image that a job ran in."""
    (pod,) = space.pods(job)
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code. Faults of the cluster are printed, without a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.worker_start", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    return print_measured(lambda folder: json.dumps(_run(options.rounds, folder), indent=2))


def _run(rounds: int, folder: Path) -> Mapping[str, Any]:
    release = install_release(folder, say, TEST_IMAGES)
    jobs, of_ray, bare = list[float](), list[float](), list[float]()
    containers, lost = list[float](), list[float]()
    with open_job_namespace(release.kubectl, release) as space:
        measure_job(space, "first")  # nodes have the images now, and the namespace its keys
        image = find_image(space, "first")
        measure_ray(space, "first-ray")
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            seconds, each = measure_job(space, f"job-{number}")
            jobs.append(seconds)
            containers += each
            of_ray.append(measure_ray(space, f"ray-{number}"))
            bare.append(measure_bare(space, f"bare-{number}", image))
            lost.append(measure_lost_head(space, f"lost-{number}", provider.current_layout()))
    *_, p95 = statistics.quantiles(containers, n=20, method="inclusive")
    return {
        "goals": GOALS,
        "processors": os.cpu_count(),
        "rounds": rounds,
        "job_seconds": round(statistics.median(jobs), 2),
        "job_ray_seconds": round(statistics.median(of_ray), 2),
        "bare_seconds": round(statistics.median(bare), 2),
        "job_more_than_bare_seconds": round(statistics.median(map(float.__sub__, jobs, bare)), 2),
        "lost_head_seconds": [round(each, 2) for each in lost],
        "container_p50_seconds": round(statistics.median(containers), 2),
        "container_p95_seconds": round(p95, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
