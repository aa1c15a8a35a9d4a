"""The example that the project promises to run: digits, on two slices of two hosts each."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, place

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits" / "frayjob.yaml"
TRAIN_SECONDS = 200.0


def test_the_example_trains_on_one_pool_per_slice_and_kubectl_says_succeeded(
    jobs: JobNamespace, layout: Layout
) -> None:
    jobs.kubectl("apply", f"--filename={EXAMPLE}")
    jobs.await_end("digits", seconds=TRAIN_SECONDS)
    header, row = (line.split() for line in jobs.kubectl("get", "fj", "digits").splitlines())
    assert dict(zip(header, row, strict=True))["PHASE"] == "Succeeded"

    pods = jobs.pods("digits")
    assert [place(pod) for pod in pods] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    nodes = [pod["spec"]["nodeName"] for pod in pods]
    assert len(set(nodes)) == 4
    pools = [layout.host_named(node).pool for node in nodes]
    assert pools[0] == pools[1] != pools[2] == pools[3]

    first, *others = jobs.logs("digits")
    accuracy = re.search(r"^test accuracy (\d\.\d+)$", first, re.MULTILINE)
    assert accuracy is not None, first
    assert float(accuracy[1]) > 0.9
    assert all("test accuracy" not in log for log in others)
    assert all(f"rank {rank} of 4" in log for rank, log in enumerate([first, *others]))
