"""What a job's processes find around them: variables, their place in the gang, their cluster, child jobs."""

from __future__ import annotations

import os

import pytest

from fray import current_identity
from fray.cluster import Cluster, Entrypoint, JobRequest, ResourceConfig, create_environment, current_cluster
from tests.conformance.backends import Backend
from tests.conformance.jobs import PATIENCE, launch_small, run, shell, texts

VARIABLES = {"PLAIN": "a b", "DOLLARS": "$(PLAIN) $$ ${HOME}", "ALPHABET": "Zürich 東京", "EMPTY": ""}


def show_variables() -> dict[str, str | None]:
    names = (*VARIABLES, "API_TOKEN", "HF_DATASETS_TRUST_REMOTE_CODE", "TOKENIZERS_PARALLELISM")
    return {name: os.environ.get(name) for name in names}


def test_variables(cluster: Cluster, name: str) -> None:
    environment = create_environment(env_vars={**VARIABLES, "API_TOKEN": "s3cret $(PLAIN)"})
    found = run(cluster, name, show_variables, environment=environment)
    defaults = {"HF_DATASETS_TRUST_REMOTE_CODE": "1", "TOKENIZERS_PARALLELISM": "false"}
    assert found == {**VARIABLES, "API_TOKEN": "s3cret $(PLAIN)", **defaults}


def test_a_default_that_was_taken_out(cluster: Cluster, name: str) -> None:
    environment = create_environment(env_vars={"TOKENIZERS_PARALLELISM": None, "PLAIN": "x"})
    found = run(cluster, name, show_variables, environment=environment)
    assert (found["TOKENIZERS_PARALLELISM"], found["PLAIN"]) == (None, "x")


def test_the_next_job_has_none_of_them(cluster: Cluster, name: str) -> None:
    environment = create_environment(env_vars={"ONLY_THEIRS": "1"})
    seen = run(cluster, f"{name}-a", lambda: os.environ.get("ONLY_THEIRS"), environment=environment)
    assert seen == "1"
    assert run(cluster, f"{name}-b", lambda: os.environ.get("ONLY_THEIRS")) is None
    assert "ONLY_THEIRS" not in os.environ


def test_programs_have_them_too(cluster: Cluster, name: str) -> None:
    environment = create_environment(env_vars={"PLAIN": "a b", "API_TOKEN": "s3cret"})
    job = shell(cluster, name, 'echo "$PLAIN $API_TOKEN $FRAY_JOB_NAME"', environment=environment)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert texts(cluster.logs(job)) == [f"a b s3cret {job}"]


def test_arguments_reach_a_program_as_they_are(cluster: Cluster, name: str) -> None:
    arguments = ["$(FRAY_JOB_NAME)", "$$", "a b", "", "*", "ü", "'\""]
    entrypoint = Entrypoint.from_command(["sh", "-c", 'for each; do echo "<$each>"; done', "sh", *arguments])
    job = cluster.launch(JobRequest(name, entrypoint))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert texts(cluster.logs(job)) == [f"<{argument}>" for argument in arguments]


def tell_place() -> str:
    identity = current_identity()
    print(f"{identity.rank} of {identity.world_size}", flush=True)
    return identity.job


@pytest.mark.parametrize("count", [1, 5, 16])
def test_copies_know_their_place(cluster: Cluster, name: str, count: int) -> None:
    resources = ResourceConfig(replicas=count)
    assert run(cluster, name, tell_place, resources=resources) == name
    assert len(cluster.poll(name).tasks) == count  # type: ignore[arg-type]
    printed = {line.rank: line.text for line in cluster.logs(name)}  # type: ignore[arg-type]
    assert printed == {rank: f"{rank} of {count}" for rank in range(count)}


def launch_children(title: str) -> dict[str, int]:
    # No assert: pytest makes it a call of its own code, which isn't where jobs run.
    inner = current_cluster()
    jobs = [launch_small(f"{title}-{number}") for number in range(2)]
    infos = inner.wait(jobs, raise_on_failure=True)
    return {info.job_id: inner.outcome(info.job_id).result() for info in infos}  # type: ignore[union-attr]


@pytest.mark.usefixtures("launching")
def test_a_job_launches_jobs(cluster: Cluster, name: str) -> None:
    children = run(cluster, name, launch_children, f"{name}-child")
    assert [*children.values()] == [42, 42]
    assert set(children) <= {info.job_id for info in cluster.list_jobs()}
    assert [info.status for info in cluster.wait([*children], timeout=PATIENCE)] == ["succeeded"] * 2


def test_callables_have_a_process_of_their_own(cluster: Cluster, backend: Backend, name: str) -> None:
    assert (run(cluster, name, os.getpid) != os.getpid()) is backend.own_processes
