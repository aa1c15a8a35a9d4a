"""How tasks fail: exceptions, time limits, cancellation, shutdown. Nothing hangs, every error has a type."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import (
    ActorDiedError,
    GetTimeoutError,
    PoolClosedError,
    TaskCancelledError,
    TaskRaisedError,
    TaskTimeoutError,
    ValueExitError,
)
from fray.job import JobContext, TaskOptions, get_job_context
from fray.job.traits import Feature, Traits
from tests.behaviour.gates import Gate, Signal, append, lines

PATIENCE = 60.0


class OwnError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Greeter:
    def greet(self) -> str:
        return "hello"

    def block(self, gate: Gate, signal: Signal) -> None:
        signal.send()
        gate.pass_through()


def fail(code: int) -> None:
    raise OwnError(code)


def fail_with(error: BaseException) -> None:
    raise error


def identity(value: object) -> object:
    return value


def block(gate: Gate, signal: Signal) -> None:
    signal.send()
    gate.pass_through()


def test_an_exception_arrives_with_its_type_each_time(ctx: JobContext) -> None:
    ref = ctx.run(fail, 7)
    lengths = set()
    for _ in range(3):
        with pytest.raises(OwnError) as caught:
            ctx.get(ref)
        assert caught.value.code == 7
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1  # no frames pile up on an exception that is raised again
    text = "".join(traceback.format_exception(caught.value))
    assert "raise OwnError(code)" in text


@pytest.mark.parametrize("error", [KeyError("k"), TimeoutError("own")])
def test_any_exception_arrives(ctx: JobContext, error: BaseException) -> None:
    ref = ctx.run(fail_with, error)
    with pytest.raises(type(error)) as caught:
        ctx.get(ref, timeout=60)
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args


@pytest.mark.parametrize("error", [StopIteration(3), StopAsyncIteration(), SystemExit(0), GeneratorExit()])
def test_what_would_end_the_callers_loop_or_process_is_an_error_of_the_task(
    ctx: JobContext, error: BaseException
) -> None:
    ref = ctx.run(fail_with, error)
    with pytest.raises(TaskRaisedError, match=type(error).__name__) as caught:
        list(map(ctx.get, [ctx.put(1), ref]))
    assert caught.value.task == "fail_with"
    assert type(caught.value.__cause__) is type(error)
    assert caught.value.__cause__.args == error.args


async def leave() -> None:
    sys.exit(0)


class Host:
    """An async actor, one of whose calls may fail while another one runs."""

    def __init__(self) -> None:
        self.guests = 0

    async def leave(self) -> None:
        await asyncio.gather(leave(), asyncio.sleep(PATIENCE))

    async def welcome(self) -> int:
        self.guests += 1
        return self.guests


def test_async_code_that_exits_ends_its_call_alone(ctx: JobContext) -> None:
    host = ctx.create_actor(Host)
    assert ctx.get(host.welcome()) == 1
    for ref in (ctx.run(leave), host.leave()):
        with pytest.raises(TaskRaisedError, match="SystemExit"):
            ctx.get(ref, timeout=PATIENCE)
    assert ctx.get(host.welcome(), timeout=PATIENCE) == 2


class Leaver:
    """Its pickle ends who reads it, unless that is held back."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.error,)


def _raise(error: type[BaseException]) -> None:
    raise error(3)


class LeavingError(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def fail_to_leave() -> None:
    raise LeavingError("no way out")


class LeftWhilePickledError(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        sys.exit(3)


class LeftWhileShownError(Exception):
    def __str__(self) -> str:
        raise BaseException("no text")  # noqa: TRY002 - what else an author may raise


class Thrower:
    def throw(self, error: type[Exception]) -> None:
        raise error("no way out")

    def calm(self) -> int:
        return 1


@pytest.mark.traits(shared_memory=False)
@pytest.mark.needs(Feature.STATS)  # not Ray, which reads values itself
@pytest.mark.parametrize("error", [SystemExit, StopIteration, GeneratorExit])
def test_a_value_whose_unpickling_would_end_its_reader_is_an_error(
    ctx: JobContext, error: type[BaseException]
) -> None:
    value = ctx.run(Leaver, error)
    for ref in (value, ctx.run(identity, value), ctx.put(Leaver(error))):
        with pytest.raises(ValueExitError, match=error.__name__):
            ctx.get(ref, timeout=PATIENCE)
    assert ctx.get(ctx.run(identity, 1), timeout=PATIENCE) == 1


@pytest.mark.needs(Feature.STATS)  # not Ray, which reads exceptions itself
def test_an_exception_whose_unpickling_would_end_its_reader_is_made_of_its_parts(ctx: JobContext) -> None:
    with pytest.raises(LeavingError, match="no way out"):
        ctx.get(ctx.run(fail_to_leave), timeout=PATIENCE)
    assert ctx.get(ctx.run(identity, 1), timeout=PATIENCE) == 1


@pytest.mark.needs(Feature.STATS)  # not Ray, which pickles exceptions itself
@pytest.mark.parametrize("error", [LeftWhilePickledError, LeftWhileShownError])
def test_an_exception_that_exits_while_it_is_sent_ends_its_call_alone(
    ctx: JobContext, error: type[Exception]
) -> None:
    thrower = ctx.create_actor(Thrower)
    with pytest.raises(error):
        ctx.get(thrower.throw(error), timeout=PATIENCE)
    assert ctx.get(thrower.calm(), timeout=PATIENCE) == 1


def give_up_after_one() -> Iterator[int]:
    yield 1
    sys.exit(0)


def test_a_generator_that_exits_fails(ctx: JobContext) -> None:
    items = ctx.run(give_up_after_one)
    assert ctx.get(next(items)) == 1
    with pytest.raises(TaskRaisedError, match="SystemExit"):
        next(items)


def test_a_task_fails_with_the_error_of_its_argument(ctx: JobContext) -> None:
    failed = ctx.run(fail, 3)
    for ref in (ctx.run(identity, failed), ctx.run(identity, value=ctx.run(identity, failed))):
        with pytest.raises(OwnError) as caught:
            ctx.get(ref)
        assert caught.value.code == 3


def test_a_list_fails_with_the_first_error(ctx: JobContext) -> None:
    with pytest.raises(OwnError) as caught:
        ctx.get([ctx.run(identity, 1), ctx.run(fail, 1), ctx.run(fail, 2)])
    assert caught.value.code == 1


@pytest.mark.traits(concurrent=True)
def test_get_gives_up_and_the_task_goes_on(ctx: JobContext, gate: Gate) -> None:
    slow = ctx.run(gate.pass_through)
    for wanted in (slow, [ctx.put(1), slow]):
        with pytest.raises(GetTimeoutError, match=r"0\.01 s") as caught:
            ctx.get(wanted, timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
    with pytest.raises(GetTimeoutError):
        ctx.get(slow, timeout=0)
    gate.open()
    assert ctx.get(slow, timeout=60) is None
    assert ctx.get(slow, timeout=0) is None


@pytest.mark.traits(concurrent=True)
@pytest.mark.parametrize("force", [False, True])
def test_a_running_task_is_cancelled(
    make_ctx: Callable[..., JobContext], traits: Traits, gate: Gate, signal: Signal, force: bool
) -> None:
    ctx = make_ctx(1)
    before = 0 if Feature.STATS in traits.refuses else ctx.stats().cancelled
    ref = ctx.run(block, gate, signal)
    signal.wait()
    ctx.cancel(ref, force=force)
    with pytest.raises(TaskCancelledError, match="block"):
        ctx.get(ref)
    assert ctx.get(ctx.run(identity, 1)) == 1  # its slot is free, though the gate is still shut
    assert Feature.STATS in traits.refuses or ctx.stats().cancelled == before + 1


@pytest.mark.traits(concurrent=True)
def test_a_cancelled_task_that_has_not_started_never_runs(
    make_ctx: Callable[..., JobContext], gate: Gate, signal: Signal, tmp_path: Path
) -> None:
    ctx = make_ctx(1)
    running = ctx.run(block, gate, signal)
    signal.wait()
    waiting = ctx.run(append, tmp_path / "ran", "waiting")
    dependent = ctx.run(append, tmp_path / "ran", waiting)
    ctx.cancel(waiting)
    ctx.cancel(waiting)
    with pytest.raises(TaskCancelledError, match="append"):
        ctx.get(waiting)  # at once, though the slot is still taken
    gate.open()
    assert ctx.get(running) is None
    for ref in (waiting, dependent):
        with pytest.raises(TaskCancelledError, match="append"):
            ctx.get(ref)
    ctx.get(ctx.run(append, tmp_path / "ran", "last"))
    assert lines(tmp_path / "ran") == ["last"]


@pytest.mark.traits(concurrent=True)
def test_a_call_of_an_actor_is_cancelled_and_the_actor_lives(
    ctx: JobContext, gate: Gate, signal: Signal
) -> None:
    actor = ctx.create_actor(Greeter)
    running = actor.block(gate, signal)
    signal.wait()
    ctx.cancel(running)
    with pytest.raises(TaskCancelledError):
        ctx.get(running)
    gate.open()
    assert ctx.get(actor.greet()) == "hello"


def test_cancel_leaves_a_value_that_is_there(ctx: JobContext) -> None:
    done, kept = ctx.run(identity, 1), ctx.put(2)
    assert ctx.get(done) == 1
    ctx.cancel(done)
    ctx.cancel(kept)
    assert ctx.get([done, kept]) == [1, 2]


@pytest.mark.traits(concurrent=True)
def test_a_task_that_takes_too_long_is_given_up(
    make_ctx: Callable[..., JobContext], traits: Traits, gate: Gate
) -> None:
    ctx = make_ctx(1)
    before = 0 if Feature.STATS in traits.refuses else ctx.stats().failed
    ref = ctx.run(gate.pass_through, options=TaskOptions(timeout=0.05, name="slow"))
    with pytest.raises(TaskTimeoutError, match=r"'slow' ran longer than its limit of 0\.05 s") as caught:
        ctx.get(ref)
    assert isinstance(caught.value, TimeoutError)
    assert ctx.get(ctx.run(identity, 1)) == 1
    assert Feature.STATS in traits.refuses or ctx.stats().failed == before + 1


def test_a_task_that_took_too_long_has_no_result(ctx: JobContext, tmp_path: Path) -> None:
    def exceed() -> str:
        time.sleep(0.02)  # longer than the limit, on any machine
        return "too late"

    ref = ctx.run(exceed, options=TaskOptions(timeout=0.001))
    with pytest.raises(TaskTimeoutError):
        ctx.get(ref)


def test_a_limit_that_is_kept_changes_nothing(ctx: JobContext) -> None:
    assert ctx.get(ctx.run(identity, 1, options=TaskOptions(timeout=100))) == 1


def test_after_shutdown_everything_says_so(ctx: JobContext) -> None:
    actor = ctx.create_actor(Greeter, name="greeter")
    assert ctx.get(actor.greet()) == "hello"
    ctx.shutdown()
    ctx.shutdown()
    with pytest.raises(PoolClosedError):
        ctx.run(identity, 1)
    with pytest.raises(PoolClosedError):
        ctx.create_actor(Greeter)
    with pytest.raises(ActorDiedError, match="greeter"):
        ctx.get(actor.greet())


@pytest.mark.traits(concurrent=True)
def test_shutdown_ends_what_is_under_way(
    make_ctx: Callable[..., JobContext], gate: Gate, tmp_path: Path
) -> None:
    signals = [Signal(tmp_path / f"signal-{n}") for n in range(2)]
    with make_ctx(1) as ctx:
        running = ctx.run(block, gate, signals[0])
        signals[0].wait()
        waiting = ctx.run(identity, 1)
        dependent = ctx.run(identity, running)
        call = ctx.create_actor(Greeter, name="greeter").block(gate, signals[1])
        signals[1].wait()
    for ref in (running, waiting, dependent):
        with pytest.raises(TaskCancelledError):
            ctx.get(ref)
    with pytest.raises(ActorDiedError, match="greeter"):
        ctx.get(call)


@pytest.mark.traits(shared_memory=True)
def test_a_task_that_was_ended_is_not_run_again(ctx: JobContext, tmp_path: Path) -> None:
    def end_all_and_fail() -> None:
        append(tmp_path / "runs", "run")
        get_job_context().shutdown()
        raise KeyError

    ref = ctx.run(end_all_and_fail, options=TaskOptions(retries=5, retry_exceptions=True))
    with pytest.raises(TaskCancelledError):
        ctx.get(ref)
    assert lines(tmp_path / "runs") == ["run"]


@pytest.mark.needs(Feature.STATS)
def test_stats_count_every_end(ctx: JobContext, traits: Traits, kind: str) -> None:
    before = ctx.stats()  # of a pool that runs for all tests, also what they did
    actor = ctx.create_actor(Greeter)
    ctx.get([ctx.run(identity, n) for n in range(5)])
    ctx.wait([ctx.run(fail, 1)])
    ctx.get(actor.greet())
    # Actors of a pool have a process of their own.
    workers = (2 if traits.concurrent else 1) + traits.own_processes
    while (stats := ctx.stats()).workers < workers:
        time.sleep(0.001)  # one process of a pool did all before the other was there
    # There, processes for tasks with an environment of their own stay for a minute.
    assert stats.workers == workers or kind == "hosts"
    assert stats.actors == 1
    assert (stats.failed - before.failed, stats.cancelled - before.cancelled) == (1, 0)
    assert (stats.succeeded - before.succeeded, stats.waiting, stats.running) == (6, 0, 0)
