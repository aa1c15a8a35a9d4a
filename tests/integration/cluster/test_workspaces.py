"""The user's code goes along with a launch: in Secrets, or staged, and never where it shouldn't."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import InvalidRequestError, WorkspaceLinkError, WorkspaceTooLargeError
from fray.types import Entrypoint, JobRequest, create_environment
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import command, decoded, secrets_of
from tests.integration.frayjobs import FrayJobs
from tests.unit.cluster.local_jobs import frayjob


def stored_jobs(frayjobs: FrayJobs) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frayjobs.api.get(frayjobs.collection).body["items"]
    return found


def workspace_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["environment"]["workspace"]
    return found


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {each.name: tar.extractfile(each).read() for each in tar.getmembers()}  # type: ignore[union-attr]


def test_the_working_directory_goes_along_in_secrets_that_the_job_owns(
    cluster: KubernetesCluster, frayjobs: FrayJobs, working_directory: Path
) -> None:
    data = os.urandom(2_000_000)
    (working_directory / "model").mkdir()
    (working_directory / "model" / "weights.bin").write_bytes(data)
    (working_directory / "train.py").write_text("print()")
    cluster.launch(command())
    (job,) = stored_jobs(frayjobs)
    asked = workspace_of(job)
    secrets = {secret["metadata"]["name"]: secret for secret in secrets_of(frayjobs)}
    names = [asked["secretName"], *asked["moreSecrets"]]
    assert sorted(secrets) == sorted(names)
    assert len(names) == 3
    for secret in secrets.values():
        (owner,) = secret["metadata"]["ownerReferences"]
        assert owner["uid"] == job["metadata"]["uid"]
    archive = b"".join(b"".join(decoded(secrets[name]).values()) for name in names)
    assert hashlib.sha256(archive).hexdigest() == asked["sha256"]
    assert unpacked(archive) == {"model/weights.bin": data, "train.py": b"print()"}


def test_a_directory_goes_along_with_a_job_from_a_file(
    cluster: KubernetesCluster, frayjobs: FrayJobs, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print()")
    cluster.create(frayjob(), workspace=tmp_path)
    (job,) = stored_jobs(frayjobs)
    (secret,) = secrets_of(frayjobs)
    assert workspace_of(job)["secretName"] == secret["metadata"]["name"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert unpacked(b"".join(decoded(secret).values())) == {"train.py": b"print()"}


def test_a_callable_and_its_workspace_go_along_beside_each_other(
    cluster: KubernetesCluster, frayjobs: FrayJobs, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("A = 1")
    environment = create_environment(workspace=code, pip_packages=["numpy"], extras=["tpu"])
    cluster.launch(JobRequest("train", Entrypoint.from_callable(lambda: 1), environment=environment))
    (job,) = stored_jobs(frayjobs)
    names = {
        job["spec"]["entrypoint"]["callable"]["secretName"],
        job["spec"]["environment"]["workspace"]["secretName"],
    }
    assert {secret["metadata"]["name"] for secret in secrets_of(frayjobs)} == names
    assert len(names) == 2
    assert job["spec"]["environment"]["pipPackages"] == ["numpy"]
    assert job["spec"]["environment"]["extras"] == ["tpu"]


def test_the_same_code_has_the_same_digest_and_none_goes_along_with_an_image(
    new_cluster: NewCluster, frayjobs: FrayJobs, working_directory: Path
) -> None:
    (working_directory / "a.py").write_text("A = 1")
    for _ in range(2):
        new_cluster().launch(command())
    new_cluster().launch(command("other", environment=create_environment(docker_image="image")))
    jobs = stored_jobs(frayjobs)
    assert [job["metadata"]["name"] for job in jobs] == ["other", "train", "train-2"]
    assert "workspace" not in jobs[0]["spec"]["environment"]
    first, second = map(workspace_of, jobs[1:])
    assert first["sha256"] == second["sha256"]
    assert first["secretName"] != second["secretName"]


def test_a_large_workspace_is_staged_once_under_its_digest(
    new_cluster: NewCluster, frayjobs: FrayJobs, working_directory: Path, tmp_path: Path
) -> None:
    staging = tmp_path / "staging"
    (working_directory / "data.bin").write_bytes(os.urandom(9_000_000))
    cluster = new_cluster(staging=staging.as_uri())
    for _ in range(2):
        cluster.launch(command())
    first, second = map(workspace_of, stored_jobs(frayjobs))
    assert first == second
    (file,) = (staging / "workspaces").iterdir()
    assert first["url"] == file.as_uri()
    assert hashlib.sha256(file.read_bytes()).hexdigest() == first["sha256"]
    assert secrets_of(frayjobs) == []


def test_code_that_cant_be_sent_is_refused_before_anything_is_made(
    cluster: KubernetesCluster, frayjobs: FrayJobs, working_directory: Path
) -> None:
    (working_directory / "data.bin").write_bytes(os.urandom(9_000_000))
    with pytest.raises(WorkspaceTooLargeError, match=r"data\.bin \(9\.0 MB\)"):
        cluster.launch(command())
    (working_directory / "data.bin").unlink()
    (working_directory / "passwords").symlink_to("/etc/passwd")
    with pytest.raises(WorkspaceLinkError, match="passwords is a link to /etc/passwd"):
        cluster.launch(command())
    with pytest.raises(InvalidRequestError, match="is no directory"):
        cluster.launch(command(environment=create_environment(workspace="missing")))
    assert stored_jobs(frayjobs) == []
    assert secrets_of(frayjobs) == []
