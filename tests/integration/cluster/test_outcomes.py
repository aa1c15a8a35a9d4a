"""What a callable left comes back to its client, as the operator's status vouches for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import JobFailedError, JobNotFoundError, OutcomeUnreadableError, RemoteTracebackError
from fray.payload.outcome import EncodedOutcome, encode_exception, encode_value, outcome_name
from fray.payload.staging import STAGING_LIMIT, FsspecStorage, staged_outcome_url
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.outcome_upload import OutcomePlace, upload_outcome
from fray.types import Entrypoint, JobId, JobRequest
from fray.wire.frayjob import FrayJob
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import command, finish
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
def pods(cluster: KubernetesCluster, frayjobs: FrayJobs, control_plane: ControlPlane, tmp_path: Path) -> Pods:
    endpoint = control_plane.endpoint
    authority = tmp_path / "ca.crt"
    authority.write_bytes(endpoint.authority)
    assert endpoint.token is not None
    token = tmp_path / "token"
    token.write_text(endpoint.token)
    access = ApiAccess(endpoint.url, frayjobs.namespace, token, authority)
    return Pods(cluster, frayjobs, ApiClient(access))


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
    told = {
        "status": "True",
        "reason": "TotalTimeout",
        "message": "late",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    ended = {"conditions": [{"type": kind, **told} for kind in ("Failed", "Finished")]}
    assert frayjobs.api.merge(frayjobs.path(late, "status"), {"status": ended}).ok
    assert cluster.outcome(late) is None
