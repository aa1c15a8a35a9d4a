"""Gang calls of earlier APIs on this machine: a process for each host, and a flat list of what they return.

`tests/integration/cluster/test_outcomes.py` has what a cluster's pods leave.
"""

from __future__ import annotations

from tests.local.legacy.programs import Place

START = """
import os, time
from fray import Entrypoint, JobRequest, RuntimeEnv, TpuRunConfig, current_cluster, current_identity
from fray.cluster import ClusterContext
from fray.cluster.ray.tpu import run_on_pod
"""


def test_each_host_returns_its_own_value_slice_by_slice(place: Place) -> None:
    program = """
def where():
    return current_identity().rank, os.environ["MEGASCALE_SLICE_ID"], os.environ["TPU_WORKER_ID"], os.getpid()

found = run_on_pod(where, "v5p-16", num_slices=2, max_retries_failure=0)
print([each[:3] for each in found], len({each[3] for each in found}))
"""
    expected = [(0, "0", "0"), (1, "0", "1"), (2, "1", "0"), (3, "1", "1")]
    assert place.run(START + program) == f"{expected} 4\n"


def test_a_host_gets_the_context_of_its_process_and_raises_with_its_own_type(place: Place) -> None:
    program = """
def main(ctx):
    if current_identity().rank == 1 and "fail" in os.environ:
        raise ZeroDivisionError("of rank 1")
    return ctx.get(ctx.run(lambda: current_identity().rank * 10 + int(os.environ["BASE"])))

context, config = ClusterContext(), TpuRunConfig("v5p-16", num_slices=[1], max_retries_failure=0)
print(context.run_on_tpu(main, config, RuntimeEnv(env={"BASE": "7"})))
try:
    context.run_on_tpu(main, config, RuntimeEnv(env={"BASE": "7", "fail": "1"}))
except ZeroDivisionError as error:
    print(error, type(error.__cause__).__name__)
"""
    assert place.run(START + program) == "[7, 17]\nof rank 1 RemoteTracebackError\n"


def test_a_gang_call_ends_with_the_job_that_made_it(place: Place) -> None:
    program = """
def wait_for_ever(path):
    open(f"{path}-{current_identity().rank}", "w").close()
    while True:
        time.sleep(0.1)

def parent(path):
    run_on_pod(lambda: wait_for_ever(path), "v5p-16", max_retries_failure=0)

path = os.path.abspath("began")
cluster = current_cluster()
job = cluster.launch(JobRequest("parent", Entrypoint.from_callable(parent, [path])))
while not (os.path.exists(f"{path}-0") and os.path.exists(f"{path}-1")):
    time.sleep(0.05)
cluster.terminate(job)
print(cluster.wait(job).status)
print(sorted({str(each.status) for each in cluster.list_jobs()}), len(cluster.list_jobs()))
"""
    assert place.run(START + program) == "stopped\n['stopped'] 2\n"
