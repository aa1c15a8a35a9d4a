"""Gang calls of earlier APIs: a function on every host of TPU slices, and what each of them returned.

A gang call is a job. Called inside a job it is a child of that one, and ends with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from fray.cluster.base import Cluster
from fray.cluster.current import current_cluster
from fray.errors import (
    InvalidRequestError,
    JobFailedError,
    JobNotFoundError,
    OutcomeUnreadableError,
    PreemptedTooOftenError,
    SurroundingsError,
)
from fray.legacy.job_body import return_from_each_rank
from fray.legacy.runtime_env import RuntimeEnv
from fray.legacy.tpu_topology import TpuRunConfig
from fray.plan.status import is_finished
from fray.types import Entrypoint, JobId, JobRequest, JobStatus, ResourceConfig
from fray.vocabulary import VerdictKind

__all__ = ["call_on_slices", "run_on_pod"]

NOT_THE_FUNCTIONS = (JobNotFoundError, OutcomeUnreadableError, SurroundingsError)
"""Causes of a failed job that its function didn't raise."""


START_SECONDS: Final = 900.0
"""Time to start for a number of slices while a smaller one is left to try. Pools take minutes to be made."""
LOOK_SECONDS: Final = 10.0


def run_on_pod(
    fn: Callable[[], Any],
    tpu_type: str,
    *,
    num_slices: int | Sequence[int] = 1,
    max_retries_preemption: int = 10_000,
    max_retries_failure: int = 10,
    runtime_env: RuntimeEnv | None = None,
) -> list[Any]:
    """Call a function on every host of TPU slices of the current cluster, and return what each returned.

    The list is flat: slice by slice, and in them host by host. One host that fails ends the others, and the
    gang starts anew while its budgets last. See `TpuRunConfig` for the parameters.

    Raises:
        PreemptedTooOftenError: The budget of preemptions is used up. It is a RuntimeError.
        JobFailedError: The gang failed with no retry left, and not by an exception of the function, which is
            raised as it is.
        RequestError: It can't be run as it is; nothing was started.
    """
    config = TpuRunConfig(tpu_type, num_slices, max_retries_preemption, max_retries_failure)
    return call_on_slices(current_cluster(), fn, config, runtime_env)


def call_on_slices(
    cluster: Cluster,
    function: Callable[..., Any],
    config: TpuRunConfig,
    runtime_env: RuntimeEnv | None,
    *,
    with_context: bool = False,
) -> list[Any]:
    """Call a function on every host of slices of a cluster; see `run_on_pod`.

    `with_context` says that the function takes the context of its process.
    """
    if not callable(function):
        # In the job it would fail on every host, and be tried again until the budget is used up.
        raise InvalidRequestError("fn", f"is a {type(function).__name__}", "Give a function, or a callable.")
    entrypoint = Entrypoint.from_callable(return_from_each_rank, [function], {"with_context": with_context})
    surroundings = runtime_env or RuntimeEnv()
    least = surroundings.to_resources()
    requests = [
        JobRequest(
            getattr(function, "__name__", "gang-call").strip("<>"),
            entrypoint,
            ResourceConfig.with_tpu(config.tpu_type, slice_count=count, cpu=least.cpu, ram=least.ram),
            surroundings.to_environment(),
            max_retries_failure=config.max_retries_failure,
            max_retries_preemption=config.max_retries_preemption,
        )
        for count in config.slice_counts
    ]
    job_id = _launch_first_that_starts(cluster, requests)
    try:
        cluster.wait(job_id, raise_on_failure=True)
    except JobFailedError as failure:
        if _is_preempted(cluster, job_id):
            raise PreemptedTooOftenError(
                failure.name, failure.reason, failure.explanation, failure.exit_code
            ) from failure
        cause = failure.__cause__
        if cause is None or isinstance(cause, NOT_THE_FUNCTIONS):
            raise
        raise cause from cause.__cause__
    except BaseException:
        # Ctrl-C, or a job that is ended while it waits here: nobody takes the results any more.
        cluster.terminate(job_id)
        raise
    return [outcome.result() for outcome in cluster.outcomes(job_id)]


def _launch_first_that_starts(cluster: Cluster, requests: Sequence[JobRequest]) -> JobId:
    """Launch requests in turn until the hosts of one start in time; return its job. The last isn't judged."""
    for request in requests[:-1]:
        job_id = cluster.launch(request)
        try:
            if _starts(cluster, job_id):
                return job_id
        except BaseException:
            cluster.terminate(job_id)
            raise
        cluster.terminate(job_id)
        # Its chips are free then. One that ended by itself meanwhile has its result.
        if cluster.wait(job_id).status is not JobStatus.STOPPED:
            return job_id
    return cluster.launch(requests[-1])


def _starts(cluster: Cluster, job_id: JobId) -> bool:
    """Return whether all hosts of a job run, or have run, before its time to start is over."""
    until = time.monotonic() + START_SECONDS
    while (left := until - time.monotonic()) > 0:
        (job,) = cluster.wait_finished([job_id], min(left, LOOK_SECONDS))
        if is_finished(job.status) or any(each.running_time for each in job.status.attempts):
            return True
    return False


def _is_preempted(cluster: Cluster, job_id: JobId) -> bool:
    """Return whether a failed job's last attempt was charged to the budget of preemptions."""
    attempts = cluster.get(job_id).status.attempts
    return bool(attempts) and attempts[-1].verdict == VerdictKind.PREEMPTION
