"""What a seed of the chaos stands for: always the same jobs and strikes, and jobs that do what they say."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from e2e.chaos.plan import LANES, Act, Blow, JobPlan, Kind, Lane, jobs, strikes
from fray.plan.gang import derive_gang
from fray.wire.frayjob import FrayJob
from fray.wire.validation import validate_manifest


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_a_seed_is_always_the_same_jobs_of_all_kinds(lane: object) -> None:
    (known,) = (one for one in LANES if one is lane)
    first = list(islice(jobs(7, known), 30))
    assert first == list(islice(jobs(7, known), 30))
    assert first != list(islice(jobs(8, known), 30))
    assert {job.kind for job in first[: len(Kind)]} == set(Kind)
    assert len({job.name for job in first}) == len(first)


def test_lanes_are_not_alike() -> None:
    orders = {tuple(job.kind for job in islice(jobs(7, lane), len(Kind))) for lane in LANES}
    assert len(orders) == len(LANES)


def test_a_seed_is_always_the_same_strikes_at_the_pace_that_is_asked_for() -> None:
    first = list(islice(strikes(7, every=2.0), 400))
    assert first == list(islice(strikes(7, every=2.0), 400))
    assert first != list(islice(strikes(8, every=2.0), 400))
    assert {strike.blow for strike in first} == set(Blow)
    assert 1.5 < sum(strike.after for strike in first) / len(first) < 2.5
    assert all(0 <= strike.victim < 1 for strike in first)


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_jobs_are_legal_and_have_the_hosts_that_their_lane_says(lane: object) -> None:
    (known,) = (one for one in LANES if one is lane)
    for plan in islice(jobs(3, known), len(Kind)):
        manifest = plan.to_manifest()
        validate_manifest(manifest)
        assert derive_gang(FrayJob.from_manifest(manifest).spec).hosts == known.hosts


def test_what_is_done_to_jobs_fits_their_kind() -> None:
    found = {job.kind: job for job in islice(jobs(3, LANES[0]), len(Kind))}
    assert [deed.act for deed in found[Kind.SUSPENDED].deeds] == [Act.SUSPEND, Act.RESUME]
    assert found[Kind.SUSPENDED].deeds[0].after < (found[Kind.SUSPENDED].seconds or 0)
    assert found[Kind.STOPPED].exit_of(1) is None
    assert found[Kind.RECOVERS].failing == found[Kind.RECOVERS].failures
    assert found[Kind.EXPIRES].ttl is not None


def test_workers_are_scaled_before_all_else_but_a_deletion() -> None:
    (lane,) = (one for one in LANES if one.has_workers)
    for plan in islice(jobs(3, lane), 3 * len(Kind)):
        acts = [deed.act for deed in plan.deeds]
        scalings = 0 if plan.kind is Kind.DELETED else 6
        assert acts[:scalings] == [Act.SCALE] * scalings
        assert Act.SCALE not in acts[scalings:]
        assert all(1 <= deed.workers <= 3 for deed in plan.deeds[:scalings])


def shell(plan: JobPlan, attempt: int) -> subprocess.Popen[bytes]:
    command = plan.to_manifest()["spec"]["entrypoint"]["command"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "FRAY_ATTEMPT": str(attempt)}
    return subprocess.Popen(command, env=environment, start_new_session=True)


@pytest.mark.parametrize("lane", [LANES[0], LANES[-1]], ids=lambda lane: lane.name)
@pytest.mark.parametrize(("attempt", "code"), [(2, 7), (3, 0)])
def test_the_program_exits_as_the_plan_says(lane: Lane, attempt: int, code: int) -> None:
    """Here that of workers counts in threads."""
    plan = JobPlan("job", Kind.RECOVERS, lane, 0, failing=2, exit_code=7)
    assert shell(plan, attempt).wait(90) == plan.exit_of(attempt) == code


def test_the_script_ends_at_once_when_it_is_told_to() -> None:
    running = shell(JobPlan("job", Kind.STOPPED, LANES[0], None), 1)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    try:
        while not children.read_text():  # the trap is set before the work begins
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert running.wait(90) == 143
    finally:
        # A container takes with it what its script leaves, which may not know its child's number yet.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(90)
