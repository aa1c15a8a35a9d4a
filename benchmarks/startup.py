"""How long users wait before anything happens: import, command line, list, plan of a large job.

    .venv/bin/python benchmarks/startup.py [--runs N]

Prints JSON: medians in milliseconds, each beside a bare interpreter measured in the same run, so that the
numbers of a slow or busy machine can be told from those of slow code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fray.kube.resources import FRAYJOBS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing import FakeCluster, build_frayjob
from fray.wire.frayjob import FrayJob

FRAY = Path(sys.executable).with_name("fray")
GOALS = {"import_fray": 50.0, "fray_help": 200.0, "fray_list": 350.0, "plan_of_96_slices": 20.0}
"""Milliseconds that each may take on an idle machine of two cores."""
LARGE_JOB = {
    "metadata": {"name": "large", "namespace": "ml"},
    "spec": {
        "entrypoint": {"command": ["python", "-m", "train"]},
        "replicas": 96,
        "resources": {"tpu": {"type": "v5p-2048"}},
    },
}


def median_ms(action: Callable[[], object], runs: int) -> float:
    """Return the median duration of `action` in milliseconds."""
    durations = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        durations.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(durations), 1)


def spawn(*command: str, **variables: str) -> Callable[[], object]:
    """Return an action that runs a command to its end, its output unseen, with modules compiled once."""
    environ = {**os.environ, **variables}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environ)


def measure_list(runs: int) -> float:
    """Return the median of `fray list` of 20 jobs; a process of this machine is the API server."""
    with FakeCluster() as cluster:
        for number in range(20):
            cluster.store(FRAYJOBS, build_frayjob(f"train-{number}").to_manifest())
        return median_ms(
            spawn(str(FRAY), "list", "--cluster", "k8s", KUBECONFIG=str(cluster.kubeconfig)), runs
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    job = FrayJob.from_manifest(LARGE_JOB)
    bare = median_ms(spawn(sys.executable, "-c", "pass"), runs)
    imported = median_ms(spawn(sys.executable, "-c", "import fray"), runs)
    helped = median_ms(spawn(str(FRAY), "--help"), runs)
    listed = measure_list(runs)
    planned = median_ms(lambda: build_attempt(job, attempt=1, settings=PlanSettings()), runs)
    measured = {
        "import_fray": {"ms": round(imported - bare, 1), "times_bare_python": round(imported / bare, 2)},
        "fray_help": {"ms": helped, "times_bare_python": round(helped / bare, 2)},
        "fray_list": {"ms": listed, "times_bare_python": round(listed / bare, 2)},
        "plan_of_96_slices": {"ms": planned},
    }
    rows = {name: {**row, "goal_ms": GOALS[name]} for name, row in measured.items()}
    where = {"python": platform.python_version(), "machine": platform.machine(), "runs": runs}
    print(json.dumps({"bare_python_ms": bare, **rows, "where": where}, indent=2))


if __name__ == "__main__":
    main()
