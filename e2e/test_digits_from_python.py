"""The digits example, launched from Python on a cluster: the program that also trains on a laptop.

By the README's command, with the namespace of the test in the place of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, place

ROOT = Path(__file__).parents[1]
TRAIN_SECONDS = 400.0


def test_the_example_trains_by_a_closure_and_its_accuracy_comes_back(
    jobs: JobNamespace, layout: Layout
) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRAY_")}
    own = {
        "KUBECONFIG": str(jobs.kubectl.kubeconfig),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^(FRAY_CLUSTER_SPEC=.*launch\.py.*)$", page, re.MULTILINE)
    assert command.count("namespace=default") == 1
    ended = subprocess.run(
        ["sh", "-c", command.replace("namespace=default", f"namespace={jobs.name}&context={CONTEXT}")],
        cwd=ROOT,
        env=inherited | own,
        capture_output=True,
        text=True,
        timeout=TRAIN_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"

    pods = jobs.pods("digits")
    assert [place(pod) for pod in pods] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    pools = [layout.host_named(pod["spec"]["nodeName"]).pool for pod in pods]
    assert pools[0] == pools[1] != pools[2] == pools[3]

    lines = ended.stdout.splitlines()
    for rank, pod in enumerate(pods):
        slice_index, host = place(pod)
        told = f"[{slice_index}/{host} 1] rank {rank} of 4: "
        assert [line.startswith(told) for line in lines].count(True) == 1, ended.stdout
    accuracy = re.fullmatch(r"digits returned accuracy (\d\.\d+)", lines[-1])
    assert accuracy is not None, ended.stdout
    assert float(accuracy[1]) > 0.9
    assert f"[0/0 1] test accuracy {accuracy[1]}" in lines
