"""How the programs of pods begin and end: which codes, and what clients are told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fray.errors import AttemptOverError, PoolClosedError
from fray.runtime.pool.host.processes import children
from fray.vocabulary import EXIT_ATTEMPT_OVER, EXIT_FAILURE
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import IN_POD, METRICS_PORT, Attempt, identity


def test_a_worker_that_came_first_joins_and_ends_with_the_attempt(attempt: Attempt) -> None:
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 503)
    attempt.show_rank_0()
    head = attempt.start_head(FRAY_POOL_METRICS=str(METRICS_PORT))
    wait_until(lambda: attempt.ask(1) == 200)
    assert attempt.ask(1, "/other") == 404
    (host,) = attempt.read_view().hosts
    assert (attempt.read_view().job, host.workers + host.starting > 0) == ("train", True)
    rank = attempt.start_rank(1)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "144\n"
    context = attempt.join()
    held = context.put(bytes(1_000_000))
    assert context.get(context.run(len, held), timeout=PATIENCE) == 1_000_000
    head.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER
    assert head.wait(PATIENCE) == 0
    with pytest.raises(
        PoolClosedError, match=r"whose attempt is over \(the main container of rank 0 has ended"
    ):
        context.get(context.run(abs, -1), timeout=PATIENCE)


def test_a_worker_that_is_asked_to_go_ends_with_0(attempt: Attempt) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


COUNT_TRIES = (
    IN_POD
    + """
from fray.errors import AttemptOverError
def is_first():
    with Path(os.environ["TEST_TRIES"]).open("a") as tries:
        return tries.write("x") == tries.tell()
"""
)
ENDS_BY_ITSELF = {
    "fray": """
from fray.runtime.pool import worker_pod
from fray.runtime.pool.host import worker_host
def run_nanny(config, *, on_joined):
    if is_first():
        on_joined("pool")
        return 0
    raise AttemptOverError("the attempt is over")
worker_host.run_nanny = run_nanny
sys.exit(worker_pod.main())
""",
    "dask": """
from fray.job import dask_pods
def join(joining, pod, head):
    if is_first():
        return True
    raise AttemptOverError("the attempt is over")
dask_pods.Joining.join = join
sys.exit(dask_pods.main(["worker"], os.environ))
""",
}


@pytest.mark.parametrize("engine", ENDS_BY_ITSELF)
def test_a_worker_whose_part_ends_well_though_nobody_asked_comes_back_and_does_not_end_with_0(
    attempt: Attempt, engine: str, tmp_path: Path
) -> None:
    attempt.show_rank_0()
    tries = tmp_path / "tries"
    variables = attempt.variables(1, TEST_TRIES=str(tries))
    worker = attempt.start(COUNT_TRIES + ENDS_BY_ITSELF[engine], **variables)
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER
    assert tries.read_text() == "xx"


def test_a_head_that_is_restarted_ends_the_attempt(attempt: Attempt) -> None:
    attempt.show_rank_0()
    head = attempt.start_head()
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    context = attempt.join()
    head.kill()
    head.wait(PATIENCE)
    restarted = attempt.start_head()
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER
    with pytest.raises(PoolClosedError):
        context.get(context.run(abs, -1), timeout=PATIENCE)
    with pytest.raises(AttemptOverError, match="restarted"):
        attempt.join()
    late = attempt.start_worker(2)
    assert late.wait(PATIENCE) == EXIT_ATTEMPT_OVER
    restarted.send_signal(signal.SIGTERM)
    assert restarted.wait(PATIENCE) == 0


def test_callers_learn_that_the_head_stands_still(attempt: Attempt) -> None:
    """The kernel answers for it, so no connection breaks."""
    attempt.show_rank_0()
    head = attempt.start_head()
    attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    context = attempt.join()
    assert context.get(context.run(abs, -1), timeout=PATIENCE) == 1
    head.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(PoolClosedError, match="silent"):
            context.get(context.run(abs, -1), timeout=PATIENCE)
    finally:
        head.send_signal(signal.SIGCONT)


def test_a_head_with_a_defect_ends_the_attempt_and_fails(attempt: Attempt, tmp_path: Path) -> None:
    attempt.show_rank_0()
    defect = tmp_path / "defect"
    head = attempt.start_head(TEST_DEFECT=str(defect))
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    defect.touch()
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER
    assert head.wait(PATIENCE) == EXIT_FAILURE


@pytest.mark.parametrize("end", ["gone", "Failed"])
def test_a_worker_ends_without_a_head_once_its_pod_has_ended(attempt: Attempt, end: str) -> None:
    attempt.show_rank_0()
    head = attempt.start_head()
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    if end == "gone":
        attempt.api.remove("rank-0")
    else:
        attempt.show_rank_0(phase=end)
    head.kill()
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER


def test_a_worker_comes_back_to_a_head_that_goes_on(attempt: Attempt) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    worker = attempt.start_worker()
    wait_until(lambda: attempt.ask(1) == 200)
    [nanny] = children(worker.pid)
    os.kill(nanny, signal.SIGKILL)
    wait_until(lambda: attempt.ask(1) == 200 and children(worker.pid) not in ([], [nanny]))
    context = attempt.join()
    assert context.get(context.run(abs, -1), timeout=PATIENCE) == 1


def test_all_ranks_join_the_pool_of_rank_0(attempt: Attempt) -> None:
    head = attempt.start_rank_0_head()
    ranks = [attempt.start_rank(rank, FRAY_POOL_HEAD=head) for rank in range(3)]
    attempt.start_worker(FRAY_POOL_HEAD=head)
    attempt.show_rank_0()
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "144\n"
        assert rank.wait(PATIENCE) == 0


def test_the_sidecar_of_another_rank_does_nothing(attempt: Attempt) -> None:
    program = "import sys\nfrom fray.runtime.pool import head_pod\nsys.exit(head_pod.main())"
    sidecar = attempt.start(program, **attempt.variables(5, **identity(1)))
    assert sidecar.stdout is not None
    assert sidecar.stdout.readline() == "the head of the pool is in the pod of rank 0\n"
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(PATIENCE) == 0
