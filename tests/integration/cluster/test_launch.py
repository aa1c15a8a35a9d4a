"""What a launch leaves in the cluster: one job with all that it needs, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import (
    FrayError,
    InvalidJobError,
    JobExistsError,
    JobLeftBehindError,
    NamespaceNotFoundError,
    SerializationError,
)
from fray.kube.errors import ServerError
from fray.payload.callables import decode_callable
from fray.types import Entrypoint, JobRequest, JobStatus, create_environment
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import command, decoded, finish, secrets_of
from tests.integration.frayjobs import FrayJobs


def closure(size: int) -> Callable[[], int]:
    data = bytes(range(256)) * (size // 256)
    return lambda: len(data)


def callable_request(size: int = 1024, **parts: Any) -> JobRequest:
    return JobRequest(name="train", entrypoint=Entrypoint.from_callable(closure(size)), **parts)


def jobs_of(frayjobs: FrayJobs) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frayjobs.api.get(frayjobs.collection).body["items"]
    return found


def test_a_program_becomes_one_frayjob(cluster: KubernetesCluster, frayjobs: FrayJobs) -> None:
    job = cluster.launch(command("train_lm"))
    assert cluster.poll(job).name == "train_lm"
    assert cluster.poll(job).status is JobStatus.PENDING
    assert [info.job_id for info in cluster.list_jobs()] == [job]
    (stored,) = jobs_of(frayjobs)
    assert stored["spec"]["entrypoint"] == {"command": ["train"]}
    assert secrets_of(frayjobs) == []


def test_a_callable_of_5_mb_goes_along_in_secrets_that_the_job_owns(
    cluster: KubernetesCluster, frayjobs: FrayJobs
) -> None:
    cluster.launch(callable_request(5_000_000))
    (stored,) = jobs_of(frayjobs)
    asked = stored["spec"]["entrypoint"]["callable"]
    secrets = {secret["metadata"]["name"]: secret for secret in secrets_of(frayjobs)}
    names = [asked["secretName"], *asked["moreSecrets"]]
    assert sorted(secrets) == sorted(names)
    assert len(names) > 5
    for secret in secrets.values():
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("FrayJob", stored["metadata"]["uid"])
    data = b"".join(b"".join(decoded(secrets[name]).values()) for name in names)
    assert hashlib.sha256(data).hexdigest() == asked["sha256"]
    assert decode_callable(data, sha256=asked["sha256"]).function() == 5_000_000 // 256 * 256


def test_a_callable_that_is_too_large_for_secrets_is_staged(
    new_cluster: NewCluster, frayjobs: FrayJobs, tmp_path: Path
) -> None:
    cluster = new_cluster(staging=tmp_path.as_uri())
    cluster.launch(callable_request(9_000_000))
    (stored,) = jobs_of(frayjobs)
    asked = stored["spec"]["entrypoint"]["callable"]
    data = Path(asked["url"].removeprefix("file://")).read_bytes()
    assert decode_callable(data, sha256=asked["sha256"]).function() == 9_000_000 // 256 * 256
    assert secrets_of(frayjobs) == []


def test_confidential_variables_stand_in_a_secret_only(
    cluster: KubernetesCluster, frayjobs: FrayJobs
) -> None:
    environment = create_environment(docker_image="image", env_vars={"API_KEY": "hunter2", "STEPS": "3"})
    cluster.launch(command(environment=environment))
    (stored,) = jobs_of(frayjobs)
    assert "hunter2" not in str(stored)
    entry = next(each for each in stored["spec"]["environment"]["env"] if each["name"] == "API_KEY")
    (secret,) = secrets_of(frayjobs)
    assert secret["metadata"]["name"] == entry["valueFrom"]["secretKeyRef"]["name"]
    assert decoded(secret)["API_KEY"] == b"hunter2"


def test_a_name_that_is_taken_gets_a_number(
    cluster: KubernetesCluster, new_cluster: NewCluster, frayjobs: FrayJobs
) -> None:
    names = [cluster.launch(callable_request()) for _ in range(3)]
    assert names == ["train", "train-2", "train-3"]
    assert new_cluster().launch(command()) not in names
    assert {info.name for info in cluster.list_jobs()} == {"train"}
    assert len(secrets_of(frayjobs)) == 3


def test_a_name_may_be_refused_or_its_job_be_adopted(cluster: KubernetesCluster, frayjobs: FrayJobs) -> None:
    first = cluster.launch(command())
    with pytest.raises(JobExistsError, match="'train' already"):
        cluster.launch(command(), when_taken="refuse")
    assert cluster.launch(command(), when_taken="adopt") == first
    finish(frayjobs, first)
    second = cluster.launch(command(), when_taken="refuse")
    assert second != first
    with pytest.raises(JobExistsError):
        cluster.launch(command(), when_taken="refuse")
    assert cluster.launch(command(), when_taken="adopt") == second
    assert len(jobs_of(frayjobs)) == 2


@pytest.mark.parametrize("kind", ["frayjobs", "secrets"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(Harm.CUT),
        Fault(Harm.CUT_AFTER),
        Fault(Harm.CUT_IN_BODY),
        Fault(Harm.LIE, 500, "InternalError"),
        Fault(Harm.ANSWER, 429, "TooManyRequests"),
        Fault(Harm.ANSWER, 503, "ServiceUnavailable"),
    ],
    ids=str,
)
def test_a_lost_answer_makes_no_second_job(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs, kind: str, fault: Fault
) -> None:
    left = [fault]
    proxy.rule = lambda call: left.pop() if left and call.what == f"POST {kind}" else None
    assert proxied.launch(callable_request()) == "train"
    assert left == []
    (stored,) = jobs_of(frayjobs)
    (secret,) = secrets_of(frayjobs)
    assert secret["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]


def test_a_job_that_no_cluster_takes_is_not_sent(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    notes = {f"NOTES_{number}": "x" * 100_000 for number in range(11)}
    environment = create_environment(docker_image="image", env_vars=notes)
    with pytest.raises(InvalidJobError, match=r"spec: takes 1,10\d,\d{3} bytes of the 1,048,576"):
        proxied.launch(command(environment=environment))
    assert [call.what for call in proxy.calls if call.what.startswith("POST")] == []
    assert jobs_of(frayjobs) == []


def refuse(*what: str) -> Callable[[Call], Fault | None]:
    return lambda call: Fault(Harm.ANSWER, 403, "Forbidden") if call.what in what else None


def test_a_launch_whose_secret_is_refused_leaves_nothing(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    proxy.rule = refuse("POST secrets")
    with pytest.raises(FrayError, match=r"POST .*/secrets: 403 Forbidden"):
        proxied.launch(callable_request())
    assert jobs_of(frayjobs) == []


def test_a_job_that_is_answered_by_errors_only_is_removed(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    lie = Fault(Harm.LIE, 500, "InternalError")
    proxy.rule = lambda call: lie if call.what == "POST frayjobs" else None
    with pytest.raises(ServerError, match="Try again later"):
        proxied.launch(command())
    assert sum(call.what == "POST frayjobs" for call in proxy.calls) > 1
    assert jobs_of(frayjobs) == []


def test_a_job_that_may_be_there_is_named_when_the_server_is_lost(
    proxied: KubernetesCluster, proxy: FaultyProxy
) -> None:
    cut = Fault(Harm.CUT_AFTER)
    proxy.rule = lambda call: cut if call.what in ("POST frayjobs", "GET frayjobs") else None
    with pytest.raises(JobLeftBehindError, match="kubectl delete frayjob other"):
        proxied.launch(command("other"))


def test_what_can_not_be_removed_is_named(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    proxy.rule = refuse("POST secrets", "DELETE frayjobs")
    with pytest.raises(JobLeftBehindError, match="kubectl delete frayjob train -n"):
        proxied.launch(callable_request())
    assert len(jobs_of(frayjobs)) == 1


def test_a_request_that_can_not_be_sent_asks_nothing_of_the_cluster(
    proxied: KubernetesCluster, proxy: FaultyProxy
) -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(SerializationError):
        proxied.launch(JobRequest(name="train", entrypoint=Entrypoint.from_callable(lambda: lock)))
    assert proxy.calls == []


def test_a_webhook_s_refusal_is_that_of_the_job(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    invalid = Fault(Harm.ANSWER, 422, "Invalid")
    proxy.rule = lambda call: invalid if call.what == "POST frayjobs" else None
    with pytest.raises(InvalidJobError, match="made up by the proxy"):
        proxied.launch(command())
    assert jobs_of(frayjobs) == []


def test_a_namespace_that_is_not_there_is_named(new_cluster: NewCluster) -> None:
    with pytest.raises(NamespaceNotFoundError, match="kubectl create namespace nowhere"):
        new_cluster(namespace="nowhere").launch(command())
