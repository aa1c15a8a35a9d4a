"""Named actors that jobs were to share are refused, as long as each job has its own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fray.errors import ActorExistsError, ActorNotSharedError
from fray.job import ActorOptions, Lifetime, SyncContext

NAMED = {"name": "stats", "get_if_exists": True}


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("FRAY_JOB_NAME", "train")
    monkeypatch.setenv("FRAY_ROOT_JOB", "train")
    return monkeypatch


def make(**options: Any) -> None:
    with SyncContext() as ctx:
        ctx.create_actor(list, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "stats", "lifetime": "detached"},
        {**NAMED, "lifetime": Lifetime.DETACHED},
        {"options": ActorOptions(name="stats", lifetime=Lifetime.DETACHED)},
    ],
    ids=str,
)
def test_none_outlives_its_job(in_job: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    with pytest.raises(ActorNotSharedError, match="'stats' would be private to job 'train'") as caught:
        make(**options)
    assert "fray.queue" in caught.value.next_step
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    in_job.delenv("FRAY_JOB_NAME")
    make(**options)


def test_a_job_does_not_find_those_of_the_job_that_launched_it(in_job: pytest.MonkeyPatch) -> None:
    make(**NAMED)
    in_job.setenv("FRAY_ROOT_JOB", "sweep")
    with pytest.raises(ActorNotSharedError, match="in job 'sweep' or its other jobs"):
        make(**NAMED)
    make(**NAMED, lifetime="ephemeral")
    make(name="stats")
    make(lifetime="detached")


def test_what_the_refusal_of_a_taken_name_advises_works_in_a_child_job(in_job: pytest.MonkeyPatch) -> None:
    in_job.setenv("FRAY_ROOT_JOB", "sweep")
    with SyncContext() as ctx:
        actor = ctx.create_actor(list, name="stats")
        with pytest.raises(ActorExistsError) as caught:
            ctx.create_actor(list, name="stats")
        assert caught.value.next_step.endswith("get_actor('stats') finds it.")
        assert ctx.get_actor("stats") == actor
