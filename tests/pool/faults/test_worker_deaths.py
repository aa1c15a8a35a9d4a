"""A worker that dies at a bad moment costs its tasks a retry, and nobody anything else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.errors import ActorDiedError, PoolClosedError, WorkerDiedError
from fray.job import ActorOptions, JobContext, TaskOptions
from fray.runtime.pool import local_pool
from fray.runtime.pool.local_pool import MAX_NANNIES
from tests.behaviour.gates import Gate, Signal, lines
from tests.pool.chaos.inspection import nanny_of, pool_of, settles
from tests.pool.faults import deaths

LARGE = 8 * 1024**2


def wait_for_run(runs: Path, number: int) -> int:
    """Return the pid of the run `number` once it has begun."""
    assert settles(lambda: len(lines(runs)) >= number)
    return int(lines(runs)[number - 1])


def test_killed_within_a_task(ctx: JobContext, tmp_path: Path, gate: Gate) -> None:
    runs = tmp_path / "runs"
    ref = ctx.run(deaths.meet, runs, gate)
    os.kill(wait_for_run(runs, 1), signal.SIGKILL)
    second = wait_for_run(runs, 2)
    gate.open()
    assert ctx.get(ref) == "done"
    assert lines(runs)[1:] == [str(second)]


def test_killed_once_too_often(ctx: JobContext, tmp_path: Path, gate: Gate) -> None:
    runs = tmp_path / "runs"
    ref = ctx.run(deaths.meet, runs, gate, options=TaskOptions(retries=1, name="meeting"))
    for number in (1, 2):
        os.kill(wait_for_run(runs, number), signal.SIGKILL)
    with pytest.raises(WorkerDiedError) as caught:
        ctx.get(ref)
    assert (caught.value.task, caught.value.attempts) == ("meeting", 2)
    first, second = caught.value.story
    assert first.startswith("attempt 1 was lost")
    assert second.startswith("attempt 2 was lost")
    assert "SIGKILL" in first
    assert "SIGKILL" in second
    assert len(lines(runs)) == 2


def test_killed_while_a_large_result_is_written(ctx: JobContext, tmp_path: Path) -> None:
    ref = ctx.run(deaths.die_while_writing, tmp_path / "runs", LARGE)
    assert ctx.get(ref) == b"x" * LARGE
    assert len(lines(tmp_path / "runs")) == 2
    store = pool_of(ctx).objects._store
    assert LARGE <= store.usage().memory < 2 * LARGE
    assert not [*store.directory.glob("*.part")]


def test_killed_when_a_value_was_put_that_nobody_heard_of(ctx: JobContext, tmp_path: Path) -> None:
    ref = ctx.run(deaths.die_in_a_put_that_nobody_hears_of, tmp_path / "runs", LARGE)
    assert ctx.get(ref) == LARGE
    # The first one's file has no reference: the fixture wants it to be gone.


@pytest.mark.parametrize("size", [10, 100_000])
def test_killed_within_a_generator(ctx: JobContext, tmp_path: Path, size: int) -> None:
    runs = tmp_path / "runs"
    stream = ctx.run(deaths.give_items, runs, 40, size, 20)
    got = [ctx.get(item) for item in stream]  # type: ignore[attr-defined]
    assert got == [bytes([index]) * size for index in range(40)]
    assert len(lines(runs)) == 2


def test_a_stopped_worker_holds_up_only_what_it_runs(ctx: JobContext, tmp_path: Path, gate: Gate) -> None:
    ref = ctx.run(deaths.meet, tmp_path / "runs", gate)
    pid = wait_for_run(tmp_path / "runs", 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert ctx.get([ctx.run(pow, 2, n) for n in range(200)]) == [2**n for n in range(200)]
        gate.open()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ctx.get(ref) == "done"


def test_a_stopped_worker_that_is_cancelled_by_force_dies(
    ctx: JobContext, tmp_path: Path, gate: Gate
) -> None:
    runs = tmp_path / "runs"
    ref = ctx.run(deaths.meet, runs, gate)
    pid = wait_for_run(runs, 1)
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGSTOP)
    ctx.cancel(ref, force=True)
    assert ctx.wait([ref], timeout=60)[0]
    os.close(handle)
    assert len(lines(runs)) == 1


def test_killed_with_its_nanny(ctx: JobContext, tmp_path: Path, gate: Gate) -> None:
    runs = tmp_path / "runs"
    kept = ctx.put(b"k" * LARGE)
    ref = ctx.run(deaths.meet, runs, gate)
    wait_for_run(runs, 1)
    os.kill(nanny_of(pool_of(ctx)), signal.SIGKILL)
    wait_for_run(runs, 2)
    gate.open()
    assert ctx.get(ref) == "done"
    assert ctx.get(kept) == b"k" * LARGE


def test_a_host_whose_nanny_dies_again_and_again_is_given_up(
    make_pool: Callable[..., JobContext], tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_pool, "STARTS_SECONDS", 3600.0)  # a slow machine needs more than a minute
    ctx = make_pool()
    runs = tmp_path / "runs"
    ref = ctx.run(deaths.meet, runs, gate, options=TaskOptions(retries=100))
    for death in range(MAX_NANNIES + 1):
        wait_for_run(runs, death + 1)
        os.kill(nanny_of(pool_of(ctx)), signal.SIGKILL)
    with pytest.raises(PoolClosedError, match="within a minute"):
        ctx.get(ref, timeout=60)
    with pytest.raises(PoolClosedError):
        ctx.run(pow, 2, 2)


def test_calls_of_a_dead_actor(ctx: JobContext) -> None:
    actor = ctx.create_actor(deaths.Explosive)
    assert ctx.get(actor.ping()) == "alive"
    early = [actor.die(), *(actor.ping() for _ in range(5_000))]
    assert len(ctx.wait(early, len(early))[0]) == len(early)
    late = [actor.ping() for _ in range(5_000)]
    for ref in early + late:
        with pytest.raises(ActorDiedError, match="SIGKILL"):
            ctx.get(ref)


def test_an_actor_that_dies_too_often_says_how(ctx: JobContext) -> None:
    actor = ctx.create_actor(deaths.Explosive, options=ActorOptions(max_restarts=2))
    for _ in range(3):
        with pytest.raises(ActorDiedError):
            ctx.get(actor.die())
    with pytest.raises(ActorDiedError) as caught:
        ctx.get(actor.ping())
    assert len(caught.value.story) == 3
    assert all("SIGKILL" in line for line in caught.value.story)


def test_one_call_of_an_actor_says_how_often_it_is_made_again(ctx: JobContext, tmp_path: Path) -> None:
    options = ActorOptions(max_restarts=-1, max_task_retries=1)
    actor = ctx.create_actor(deaths.Explosive, options=options)
    with pytest.raises(ActorDiedError):
        ctx.get(actor.die_once.options(max_task_retries=0).remote(tmp_path / "never"))
    assert ctx.get(actor.die_once(tmp_path / "as the actor")) == "alive"
    plain = ctx.create_actor(deaths.Explosive, options=ActorOptions(max_restarts=1))
    assert ctx.get(plain.die_once.options(max_task_retries=1).remote(tmp_path / "once")) == "alive"


def test_a_worker_whose_task_has_ended_may_die_unheard(
    ctx: JobContext, tmp_path: Path, signal_of_task: Signal
) -> None:
    pids = set(ctx.get([ctx.run(os.getpid) for _ in range(20)]))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert ctx.get([ctx.run(pow, 3, n) for n in range(50)]) == [3**n for n in range(50)]
