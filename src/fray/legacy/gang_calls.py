"""Gang calls of earlier APIs: a function on every host of TPU slices, and what each of them returned.

A gang call is a job. Called inside a job it is a child of that one, and ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fray.cluster.base import Cluster
from fray.cluster.current import current_cluster
from fray.errors import (
    InvalidRequestError,
    JobFailedError,
    JobNotFoundError,
    OutcomeUnreadableError,
    PreemptedTooOftenError,
    SurroundingsError,
    UnsupportedFeatureError,
)
from fray.legacy.job_body import return_from_each_rank
from fray.legacy.runtime_env import RuntimeEnv
from fray.types import Entrypoint, JobId, JobRequest, ResourceConfig
from fray.vocabulary import VerdictKind

__all__ = ["TpuRunConfig", "call_on_slices", "run_on_pod"]

NOT_THE_FUNCTIONS = (JobNotFoundError, OutcomeUnreadableError, SurroundingsError)
"""Causes of a failed job that its function didn't raise."""


@dataclass(frozen=True)
class TpuRunConfig:
    """The slices of a gang call, and how often it is tried again.

    Args:
        tpu_type: Type of the TPU, such as `v5p-16`.
        num_slices: Slices of that type. A list of one number means the number.
        max_retries_preemption: How often it is tried again after it lost its nodes.
        max_retries_failure: How often after failures of its own.

    Raises:
        UnsupportedFeatureError: `num_slices` lists several numbers.
        InvalidRequestError: It lists none.
    """

    tpu_type: str
    num_slices: int | Sequence[int] = 1
    max_retries_preemption: int = 10_000
    max_retries_failure: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.num_slices, int):
            return
        if len(self.num_slices) > 1:
            reason = "a job has as many slices as it was launched with"
            raise UnsupportedFeatureError(f"num_slices={self.num_slices}", reason, "Name one number.")
        if not self.num_slices:
            raise InvalidRequestError("TpuRunConfig.num_slices", "is empty", "Name one number, such as 1.")

    @property
    def slice_count(self) -> int:
        """The number of slices."""
        return self.num_slices if isinstance(self.num_slices, int) else self.num_slices[0]


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
    request = JobRequest(
        getattr(function, "__name__", "gang-call").strip("<>"),
        Entrypoint.from_callable(return_from_each_rank, [function], {"with_context": with_context}),
        ResourceConfig.with_tpu(config.tpu_type, slice_count=config.slice_count),
        (runtime_env or RuntimeEnv()).to_environment(),
        max_retries_failure=config.max_retries_failure,
        max_retries_preemption=config.max_retries_preemption,
    )
    job_id = cluster.launch(request)
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


def _is_preempted(cluster: Cluster, job_id: JobId) -> bool:
    """Return whether a failed job's last attempt was charged to the budget of preemptions."""
    attempts = cluster.get(job_id).status.attempts
    return bool(attempts) and attempts[-1].verdict == VerdictKind.PREEMPTION
