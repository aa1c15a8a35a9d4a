"""What a callable left comes back to its client, as the operator's status vouches for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import (
    JobFailedError,
    JobNotFoundError,
    OutcomeUnreadableError,
    PreemptedTooOftenError,
    RemoteTracebackError,
)
from fray.legacy.cluster_context import ClusterContext
from fray.legacy.tpu_topology import TpuRunConfig
from fray.payload.outcome import EncodedOutcome, encode_exception, encode_value, outcome_name
from fray.payload.staging import STAGING_LIMIT, FsspecStorage, staged_outcome_url
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.outcome_upload import OutcomePlace, upload_outcome
from fray.termination import Ending, TerminationMessage
from fray.testing import build_end
from fray.types import Entrypoint, JobId, JobRequest
from fray.vocabulary import LABEL_ATTEMPT, LABEL_COMPLETION_INDEX, LABEL_JOB_INDEX, LABEL_JOB_UID
from fray.wire.frayjob import FrayJob
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import Background, command, finish, set_status
from tests.integration.controller.hands import Hands, eventually
from tests.integration.frayjobs import FrayJobs

FAILED = {"verdict": "Failure", "reason": "NonZeroExit", "rank": 3, "message": "rank 3 exited with code 1"}
DONE = {"verdict": "Success", "reason": "Completed"}


class Pods:
    """What a job's pods do at its end."""

    def __init__(self, cluster: KubernetesCluster, frayjobs: FrayJobs, api: ApiClient) -> None:
        self._frayjobs, self._api = frayjobs, api
        self.job = cluster.launch(JobRequest(name="train", entrypoint=Entrypoint.from_callable(print)))

    def leave(self, outcome: EncodedOutcome, *, by: int, sha256: str = "", **attempt: Any) -> None:
        uid = self._frayjobs.api.get(self._frayjobs.path(self.job)).body["metadata"]["uid"]
        name = outcome_name(job_uid=uid, attempt=1, rank=by)
        upload_outcome(self._api, OutcomePlace(name, self.job, uid, 1), outcome.data)
        self.finish(outcome=sha256 or outcome.sha256, **attempt)

    def finish(self, **attempt: Any) -> None:
        finish(
            self._frayjobs, self.job, "Succeeded" if attempt["verdict"] == "Success" else "Failed", **attempt
        )


@pytest.fixture
def in_pod(frayjobs: FrayJobs, control_plane: ControlPlane, tmp_path: Path) -> ApiClient:
    """The API server as a pod asks it."""
    endpoint = control_plane.endpoint
    authority = tmp_path / "ca.crt"
    authority.write_bytes(endpoint.authority)
    assert endpoint.token is not None
    token = tmp_path / "token"
    token.write_text(endpoint.token)
    return ApiClient(ApiAccess(endpoint.url, frayjobs.namespace, token, authority))


@pytest.fixture
def pods(cluster: KubernetesCluster, frayjobs: FrayJobs, in_pod: ApiClient) -> Pods:
    return Pods(cluster, frayjobs, in_pod)


def raised(error: Exception) -> EncodedOutcome:
    return encode_exception(error, function="main", process="rank 3 of job train, attempt 1")


def test_an_exception_is_the_cause_of_the_job_s_failure(cluster: KubernetesCluster, pods: Pods) -> None:
    pods.leave(raised(ValueError("no number")), by=3, **FAILED)
    with pytest.raises(JobFailedError, match="NonZeroExit") as caught:
        cluster.wait(pods.job, raise_on_failure=True)
    cause = caught.value.__cause__
    assert type(cause) is ValueError
    assert str(cause) == "no number"
    assert isinstance(cause.__cause__, RemoteTracebackError)


def test_a_value_of_rank_0_comes_back(cluster: KubernetesCluster, pods: Pods) -> None:
    assert cluster.outcome(pods.job) is None
    pods.leave(encode_value({"loss": 0.25}), by=0, **DONE)
    outcome = cluster.outcome(pods.job)
    assert outcome is not None
    assert outcome.result() == {"loss": 0.25}


def test_a_value_behind_the_staging_url_comes_back(
    new_cluster: NewCluster, frayjobs: FrayJobs, tmp_path: Path
) -> None:
    staging = (tmp_path / "staging").as_uri()
    cluster = new_cluster(staging=staging)
    job = cluster.launch(JobRequest(name="train", entrypoint=Entrypoint.from_callable(print)))
    kept = encode_value(b"x" * 2_000_000, limit=STAGING_LIMIT)
    finish(frayjobs, job, "Succeeded", outcome=kept.sha256, **DONE)
    with pytest.raises(OutcomeUnreadableError, match="no payload is there"):
        cluster.outcome(job)
    url = staged_outcome_url(staging, kept.sha256)
    FsspecStorage().write(url, kept.data)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == b"x" * 2_000_000
    (tmp_path / "staging" / "outcomes" / kept.sha256).write_bytes(b"another")
    with pytest.raises(OutcomeUnreadableError, match="sha256"):
        cluster.outcome(job)


def test_bytes_that_the_status_does_not_vouch_for_are_not_unpickled(
    cluster: KubernetesCluster, pods: Pods
) -> None:
    pods.leave(encode_value(1), by=0, sha256="0" * 64, **DONE)
    with pytest.raises(OutcomeUnreadableError, match="sha256"):
        cluster.outcome(pods.job)


def test_an_outcome_that_is_gone_hides_no_failure(cluster: KubernetesCluster, pods: Pods) -> None:
    pods.finish(outcome="0" * 64, **FAILED)
    with pytest.raises(OutcomeUnreadableError, match=r"fray-outcome-(.|\n)*rank 3 exited") as gone:
        cluster.outcome(pods.job)
    assert "404" in str(gone.value)
    with pytest.raises(JobFailedError) as caught:
        cluster.wait(pods.job, raise_on_failure=True)
    assert isinstance(caught.value.__cause__, OutcomeUnreadableError)


def test_a_failed_job_that_is_gone_by_then_has_failed(
    cluster: KubernetesCluster, pods: Pods, frayjobs: FrayJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time to live may be over before its outcome is read."""
    wait_finished = cluster.wait_finished

    def wait_and_delete(job_ids: Sequence[JobId], timeout: float | None, **options: Any) -> list[FrayJob]:
        jobs = wait_finished(job_ids, timeout, **options)
        assert frayjobs.api.delete(frayjobs.path(pods.job)).ok
        return jobs

    pods.finish(**FAILED)
    monkeypatch.setattr(cluster, "wait_finished", wait_and_delete)
    with pytest.raises(JobFailedError, match="NonZeroExit") as caught:
        cluster.wait(pods.job, raise_on_failure=True)
    assert isinstance(caught.value.__cause__, JobNotFoundError)


def test_a_job_has_none_that_kept_none_or_was_ended_by_others(
    cluster: KubernetesCluster, pods: Pods, frayjobs: FrayJobs
) -> None:
    pods.finish(**DONE)
    assert cluster.outcome(pods.job) is None
    program = cluster.launch(command("program"))
    finish(frayjobs, program, outcome="0" * 64, **DONE)
    assert cluster.outcome(program) is None
    late = JobId(cluster.launch(JobRequest(name="late", entrypoint=Entrypoint.from_callable(print))))
    finish(frayjobs, late, "Failed", outcome="0" * 64, **{**FAILED, "reason": "Disrupted"})
    # Its last attempt was disrupted; then the time for the whole job was over.
    set_status(frayjobs, late, build_end("Failed", "TotalTimeout", "late"))
    assert cluster.outcome(late) is None


def call_on_two_slices(cluster: KubernetesCluster, frayjobs: FrayJobs) -> tuple[Background, dict[str, Any]]:
    """Begin a gang call; return it, and its job as it is once it is there."""
    config = TpuRunConfig("v5p-16", num_slices=2, max_retries_failure=3)
    running = Background(lambda: ClusterContext(cluster).run_on_tpu(str, config))
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = frayjobs.api.get(frayjobs.collection).body["items"]
        return bool(found)

    eventually(is_there)
    return running, found[0]


def end_rank(frayjobs: FrayJobs, in_pod: ApiClient, job: dict[str, Any], rank: int, value: Any) -> None:
    """Let a host (two in each slice) return a value; the last words of its pod have the digest."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    outcome = encode_value(value)
    if outcome.data:
        place = OutcomePlace(outcome_name(job_uid=uid, attempt=1, rank=rank), name, uid, 1)
        upload_outcome(in_pod, place, outcome.data)
    labels = {
        LABEL_JOB_UID: uid,
        LABEL_ATTEMPT: "1",
        LABEL_JOB_INDEX: str(rank // 2),
        LABEL_COMPLETION_INDEX: str(rank % 2),
    }
    metadata = {"name": f"{name}-{rank}", "labels": labels}
    path = f"/api/v1/namespaces/{frayjobs.namespace}/pods"
    body = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "image"}]}}
    created = frayjobs.api.post(path, body)
    assert created.ok, created.body
    words = TerminationMessage(Ending.RETURNED, "int", sha256=outcome.sha256)
    Hands(frayjobs.api, frayjobs.namespace).exit(created.body, 0, message=words.to_json())


def test_a_gang_call_returns_what_each_host_left_as_its_pod_vouches_for_it(
    cluster: KubernetesCluster, frayjobs: FrayJobs, in_pod: ApiClient
) -> None:
    running, job = call_on_two_slices(cluster, frayjobs)
    assert job["spec"]["retries"] == {"failures": 3, "preemptions": 10_000}
    values = [None, 1, "two", [3]]
    for rank in (2, 0, 3, 1):
        end_rank(frayjobs, in_pod, job, rank, values[rank])
    finish(frayjobs, job["metadata"]["name"], **DONE)
    assert running.result() == values
    # A pod that is gone has left nothing that anybody vouches for.
    path = f"/api/v1/namespaces/{frayjobs.namespace}/pods/{job['metadata']['name']}-1"
    assert frayjobs.api.delete(path).ok
    problems = [outcome.problem for outcome in cluster.outcomes(JobId(job["metadata"]["name"]))]
    assert [bool(problem) for problem in problems] == [False, True, False, False]


def test_a_gang_call_that_lost_its_nodes_too_often_says_so(
    cluster: KubernetesCluster, frayjobs: FrayJobs
) -> None:
    running, job = call_on_two_slices(cluster, frayjobs)
    finish(frayjobs, job["metadata"]["name"], "Failed", verdict="Preemption", reason="Disrupted", rank=1)
    with pytest.raises(RuntimeError, match="TPU job was preempted too many times") as lost:
        running.result()
    assert isinstance(lost.value, PreemptedTooOftenError)
