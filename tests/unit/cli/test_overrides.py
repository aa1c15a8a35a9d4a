"""What the command line says in the place of a job's file."""

from __future__ import annotations

import pytest

from fray.cli.job_options import JobOptions
from fray.cli.requested_job import override_job
from fray.errors import FrayError
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob


def job() -> FrayJob:
    return build_frayjob(
        replicas=2,
        retries={"failures": 3, "preemptions": 7},
        environment={"env": [{"name": "MODE", "value": "slow"}, {"name": "KEPT", "value": "1"}]},
    )


def override(*, is_local: bool = True, **options: object) -> tuple[FrayJob, tuple[str, ...]]:
    return override_job(job(), JobOptions(**options), environ={"HERE": "h"}, is_local=is_local)  # type: ignore[arg-type]


def test_nothing_changes_without_options() -> None:
    assert override() == (job(), ())


def test_a_zero_counts_as_any_number() -> None:
    changed, told = override(retries=0)
    assert changed.spec.retries.failures == 0
    assert changed.spec.retries.preemptions == 7
    assert told == ("retries.failures 0",)


def test_all_that_makes_sense_takes_the_place_of_the_files() -> None:
    changed, told = override(replicas=5, image="i", timeout="90m", env=("MODE=$(fast)", "HERE"))
    spec = changed.spec
    assert (spec.replicas, spec.environment.image, spec.timeouts.total_seconds) == (5, "i", 5400)
    assert [(each.name, each.value) for each in spec.environment.env] == [
        ("KEPT", "1"),
        ("MODE", "$$(fast)"),
        ("HERE", "h"),
    ]
    assert told == ("replicas 5", "timeouts.totalSeconds 5400", "image i", "env MODE, HERE")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": "soon"}, "--timeout"),
        ({"timeout": "600000h"}, "spec.timeouts.totalSeconds: must be at most 2147483647"),
        ({"replicas": 10_001}, "spec.replicas"),
        ({"env": ("NOPE",)}, "isn't set here"),
        ({"env": ("API_TOKEN=abc",), "is_local": False}, "API_TOKEN, which all could read"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(FrayError, match=told):
        override(**options)  # type: ignore[arg-type]
