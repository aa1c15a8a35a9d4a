"""`save_timeline` writes a trace that viewers read, from any kind of context."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import InvalidOptionError, PoolClosedError, TaskCancelledError, TaskTimeoutError
from fray.job import JobContext, TaskOptions, create_job_ctx
from fray.job.pool import start_pool
from fray.job.pool_stats import list_runs
from fray.job.timeline import TaskRun, build_trace, to_json
from fray.runtime.pool.machine.records import Run
from tests.behaviour.gates import Gate, Signal, append, lines
from tests.pool.seeing.trace_format import check_trace, read_runs


def a_run(began: float, seconds: float, row: int = 1, **more: Any) -> TaskRun:
    named: dict[str, Any] = {"name": "f", "is_call": False, "attempt": 1, "outcome": "done", "waited": 0.25}
    return TaskRun(row=(row, f"worker {row}"), began=began, seconds=seconds, **(named | more))


class Adder:
    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> int:
        self.total += number
        return self.total


def identity(value: Any) -> Any:
    return value


def fail() -> None:
    raise ValueError("no")


def die_once(path: Path) -> str:
    append(path, "run")
    if len(lines(path)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def fail_once(path: Path) -> None:
    append(path, "run")
    if len(lines(path)) == 1:
        raise OSError("once")


def block(gate: Gate, started: Signal) -> None:
    started.send()
    gate.pass_through()


# --- the format --------------------------------------------------------------------------------------------


def test_runs_of_one_worker_that_overlap_get_rows_of_their_own(tmp_path: Path) -> None:
    runs = [a_run(10.0, 2.0), a_run(10.5, 0.5), a_run(11.0, 3.0), a_run(12.0, 1.0), a_run(10.0, 1.0, row=2)]
    path = tmp_path / "trace"
    path.write_text(to_json(runs))
    trace = check_trace(path)
    rows = [(event["pid"], event["tid"], event["ts"]) for event in read_runs(trace, "f")]
    assert rows == [(1, 1, 0), (1, 1, 2_000_000), (1, 2, 500_000), (1, 2, 1_000_000), (2, 1, 0)]
    assert trace["otherData"]["began"] == 10.0


def test_calls_have_a_row_beside_that_of_tasks() -> None:
    trace = build_trace([a_run(1.0, 1.0, is_call=True), a_run(3.0, 1.0), a_run(5.0, 1.0, is_call=True)])
    titles = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert titles == {1: "worker 1", 2: "worker 1: calls"}
    assert [(event["tid"], event["cat"]) for event in read_runs(trace, "f")] == [
        (1, "task"),
        (2, "call"),
        (2, "call"),
    ]


def test_an_event_says_how_the_run_went() -> None:
    run = a_run(1_800_000_000.25, 0.0015, name="Adder.add", is_call=True, attempt=3, outcome="failed")
    (event,) = [event for event in build_trace([run])["traceEvents"] if event["ph"] == "X"]
    assert (event["name"], event["cat"], event["dur"]) == ("Adder.add", "call", 1500)
    assert event["args"] == {"attempt": 3, "outcome": "failed", "waited_ms": 250.0}


def test_no_run_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(to_json([]))
    assert check_trace(path)["traceEvents"] == []


def a_finished(host: str, began: float, *, sent: float, told: float, seconds: float = 0.1) -> Run:
    return Run("f", 3, host, began, seconds, 2, 1000.0, sent, told, "done", is_call=False)


def test_waiting_counts_from_submission_by_the_clock_of_the_head() -> None:
    ended = a_finished("host", 1000.5, sent=1000.4, told=1000.7)
    never_began = ended._replace(began=0.0)
    runs = list_runs([ended, never_began])
    assert [(run.row, round(run.waited, 6)) for run in runs] == [((3, "worker 3 on host"), 0.5)]


def test_runs_of_hosts_whose_clocks_differ_are_told_by_the_clock_of_the_head() -> None:
    # What the head's clock would have said of each run: it began 10 ms after it was sent, at the quickest.
    runs = [
        a_finished(host, began + wrong, sent=began - way, told=began + 0.1 + way)
        for host, wrong in (("fast", 90.0), ("slow", -7.5), ("right", 0.0))
        for began, way in ((1001.0, 0.25), (1002.0, 0.01), (1003.0, 3.0))
    ]
    assert [(round(run.began, 6), round(run.waited, 6)) for run in list_runs(runs)] == [
        (1001.0, 1.0),
        (1002.0, 2.0),
        (1003.0, 3.0),
    ] * 3


# --- of real runs ------------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "threadpool", "pool"])
def ctx(request: pytest.FixtureRequest) -> Iterator[JobContext]:
    with create_job_ctx(request.param, max_workers=2) as made:
        yield made


def test_tasks_and_calls_are_in_it(ctx: JobContext, tmp_path: Path) -> None:
    adder = ctx.create_actor(Adder)
    ctx.get([ctx.run(identity, number, name="mine") for number in range(20)])
    ctx.get([adder.add(number) for number in range(5)])
    ctx.wait([ctx.run(fail)])
    path = tmp_path / "trace.json"
    ctx.save_timeline(path)
    trace = check_trace(path)
    assert len(read_runs(trace, "mine")) == 20
    calls = read_runs(trace, "Adder.add")
    assert [event["cat"] for event in calls] == ["call"] * 5
    (failed,) = read_runs(trace, "fail")
    assert (failed["cat"], failed["args"]["outcome"], failed["args"]["attempt"]) == ("task", "failed", 1)
    assert all(event["args"]["waited_ms"] >= 0 for event in trace["traceEvents"] if event["ph"] == "X")


def test_a_file_that_cannot_be_written_is_an_os_error(ctx: JobContext, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ctx.save_timeline(tmp_path / "missing" / "trace.json")


def test_attempts_and_ends_of_a_pool(tmp_path: Path) -> None:
    gate, started = Gate(tmp_path / "gate"), Signal(tmp_path / "signal")
    with start_pool(1) as ctx:
        assert ctx.get(ctx.run(die_once, tmp_path / "deaths")) == "alive"
        ctx.get(ctx.run(fail_once, tmp_path / "fails", options=TaskOptions(retry_exceptions=True)))
        with pytest.raises(TaskTimeoutError):
            ctx.get(ctx.run(gate.pass_through, options=TaskOptions(timeout=0.1, name="slow")))
        cancelled = ctx.run(block, gate, started)
        started.wait()
        ctx.cancel(cancelled)
        with pytest.raises(TaskCancelledError):
            ctx.get(cancelled)
        gate.open()
        ctx.save_timeline(tmp_path / "trace.json")
        stats = ctx.stats()
    trace = check_trace(tmp_path / "trace.json")

    def told(name: str) -> list[tuple[int, str]]:
        return [(event["args"]["attempt"], event["args"]["outcome"]) for event in read_runs(trace, name)]

    assert told("die_once") == [(2, "done")]  # nobody could tell of the first
    assert told("fail_once") == [(1, "failed"), (2, "done")]
    assert (stats.cancelled, stats.failed, stats.succeeded) == (1, 1, 2)
    assert told("slow") in ([], [(1, "TaskTimeoutError")])  # none if its worker had to be ended
    assert told("block") in ([], [(1, "TaskCancelledError")])


def test_a_worker_and_a_closed_pool_have_no_timeline(tmp_path: Path) -> None:
    with start_pool(1) as ctx, pytest.raises(InvalidOptionError, match="called in a worker"):
        ctx.get(ctx.run(save_from_worker, str(tmp_path / "trace")))
    with pytest.raises(PoolClosedError):
        ctx.save_timeline(tmp_path / "trace")
    assert isinstance(ctx, JobContext)
    assert not (tmp_path / "trace").exists()


def save_from_worker(path: str) -> None:
    from fray.job import get_job_context  # noqa: PLC0415

    get_job_context().save_timeline(path)
