"""The job on the command line is judged as the API server would, with a hint where one helps."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from fray.cli.requested_job import LoadedJobs, load_job, load_jobs
from fray.errors import InvalidJobError, JobFileError
from fray.wire.frayjob import FrayJob


def load(*, name: str | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> FrayJob:
    manifest = {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": "job"} if metadata is None else metadata,
        "spec": {"entrypoint": {"command": ["train"]}, **spec},
    }
    return load_job("-", stdin=io.BytesIO(json.dumps(manifest).encode()), name=name).job


def problems(**request: Any) -> str:
    with pytest.raises(InvalidJobError) as caught:
        load(**request)
    return str(caught.value)


def test_a_name_on_the_command_line_wins() -> None:
    assert load(name="other").metadata.name == "other"
    assert load(name="other", metadata={"labels": {"a": "b"}}).metadata.labels == {"a": "b"}


@pytest.mark.parametrize("named", [".", "code", "/", "nowhere"])
def test_a_directory_as_workspace_is_relative_to_its_file(tmp_path: Path, named: str) -> None:
    (tmp_path / "code").mkdir()
    file = tmp_path / "job.json"
    environment = {"workspace": named, "image": "i"}
    spec = {"entrypoint": {"command": ["train"]}, "environment": environment}
    file.write_text(
        json.dumps(
            {"apiVersion": "fray.dev/v1alpha1", "kind": "FrayJob", "metadata": {"name": "job"}, "spec": spec}
        )
    )
    loaded = load_job(str(file), stdin=io.BytesIO())
    assert loaded.workspace == tmp_path / named
    assert loaded.job.spec.environment.to_manifest() == {"image": "i"}


def test_a_workspace_that_is_neither_directory_nor_archive_is_refused() -> None:
    for wrong in ("", 5, ["."]):
        assert "spec.environment.workspace" in problems(environment={"workspace": wrong})


@pytest.mark.parametrize("name", ["x" * 64, "a.b", "A", "-a", "../a", "a/b", ""])
def test_a_name_that_no_job_may_have_is_refused(name: str) -> None:
    assert "metadata.name" in problems(name=name)


def test_a_name_is_needed_here() -> None:
    assert "fray run` takes --name" in problems(metadata={"generateName": "job-"})
    assert load(metadata={"generateName": "job-"}, name="job").metadata.name == "job"


def test_every_wrong_field_is_listed() -> None:
    text = problems(replicas="2", foo=1)
    assert "spec.replicas: " in text
    assert "spec.foo: unknown field" in text


def test_the_nearest_legal_accelerators_are_named() -> None:
    assert "(nearest: v5p-16, v5p-32)" in problems(resources={"tpu": {"type": "v5p-17"}})
    assert "nearest: nvidia-h100-80gb" in problems(resources={"gpu": {"type": "nvidia-h100-40gb"}})
    assert "nearest" not in problems(resources={"tpu": {"type": 5}})
    assert "nearest" not in problems(resources={"gpu": {"type": "nvidia-l4", "count": 3}})


def written(*objects: dict[str, Any]) -> io.BytesIO:
    return io.BytesIO("\n---\n".join(map(json.dumps, objects)).encode())


def load_all(*objects: dict[str, Any]) -> LoadedJobs:
    return load_jobs("-", stdin=written(*objects))


def manifest(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"entrypoint": {"command": ["train"]}}
    about = {"name": name, **metadata}
    return {"apiVersion": "fray.dev/v1alpha1", "kind": "FrayJob", "metadata": about, "spec": spec}


def test_all_jobs_of_a_file_are_taken_without_what_the_server_wrote() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
    kept = {"labels": {"a": "b"}, "ownerReferences": [owner], "finalizers": ["a/b"]}
    stored = manifest("b", uid="u", resourceVersion="7", **kept)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    loaded = load_all(manifest("a"), secret, {**stored, "status": {"phase": "Running"}})
    assert loaded.others == ("Secret/s",)
    assert [each.job.metadata.name for each in loaded.jobs] == ["a", "b"]
    assert loaded.jobs[1].job.to_manifest() == manifest("b", **kept)


def test_one_job_may_be_asked_for_and_named() -> None:
    job = load_job("-", stdin=written(manifest("a")), name="other").job
    assert job.metadata.name == "other"
    with pytest.raises(JobFileError, match="holds 2 FrayJobs"):
        load_job("-", stdin=written(manifest("a"), manifest("b")))
    with pytest.raises(JobFileError, match="no object of kind FrayJob"):
        load_all({"kind": "Secret", "metadata": {"name": "s"}})
    with pytest.raises(InvalidJobError, match="'b' is invalid"):
        load_all(manifest("a"), {**manifest("b"), "nonsense": 1})
