"""Threads other than the main one ask for the context: in a rank, and in a worker of the attempt."""

from __future__ import annotations

from tests.pool.pods.attempt import IN_POD, Attempt, identity, read_line

JOINING = """
from concurrent.futures import ThreadPoolExecutor
from fray.job import create_job_ctx, get_default_job_ctx
def in_thread(function):
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()
def nested():
    def ask():
        ctx = create_job_ctx("auto")
        return ctx is get_default_job_ctx(), ctx.get(ctx.run(pow, 12, 2))
    return in_thread(ask)
joined = in_thread(lambda: create_job_ctx("auto"))
print(joined is get_default_job_ctx() is in_thread(get_default_job_ctx), flush=True)
print(in_thread(lambda: joined.get(joined.run(pow, 12, 2))), flush=True)
print(*joined.get(joined.run(nested)), flush=True)
"""


def test_a_thread_joins_for_its_process_and_one_of_a_task_has_the_context_of_its_worker(
    attempt: Attempt,
) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    attempt.start_worker(1, FRAY_WORKERS_SHAPE="CPU=2")
    rank = attempt.start(IN_POD + JOINING, **attempt.variables(101, **identity(1)))
    assert read_line(rank) == "True\n"
    assert read_line(rank) == "144\n"
    assert read_line(rank) == "True 144\n"
