"""Contexts on Dask: clusters of their own and of others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

from fray.errors import (
    ActorDiedError,
    ContextUnavailableError,
    UnschedulableError,
    WorkerDiedError,
)
from fray.job import JobContext, TaskOptions, create_job_ctx, dask_client, get_job_context

PATIENCE = 120


@pytest.fixture(scope="module")
def ctx() -> Iterator[JobContext]:
    # A task that ends its worker is not run again: to start one takes seconds.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        create_job_ctx("dask", max_workers=1, resources={"GPU": 1}) as made,
    ):
        yield made


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def end_worker(path: Path) -> None:
    with path.open("a") as file:
        file.write("!")
    os.kill(os.getpid(), signal.SIGKILL)


def test_who_reads_results_waits_for_a_worker_that_is_gone_for_a_moment_only(
    ctx: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_client, "WORKER_SECONDS", 0.1)
    client: Any = ctx._engine._client  # type: ignore[attr-defined]
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"after 0\.1 s"):
            client.sync(client.rpc.connect, f"tcp://127.0.0.1:{gone.getsockname()[1]}")


def test_without_distributed_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ContextUnavailableError, match=r"pip install 'fray\[dask\]'"):
        create_job_ctx("dask")
    with create_job_ctx("auto") as context:
        assert "threadpool" in repr(context)


def test_a_script_that_its_workers_would_run_again_is_told_what_to_write(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from fray.job import create_job_ctx\ncreate_job_ctx('dask', max_workers=1)\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    *_, error, advice = ran.stderr.strip().splitlines()
    assert "ContextUnavailableError: context type 'dask' is not available: its workers don't start" in error
    assert "if __name__ == '__main__':" in advice


def test_an_address_where_nobody_listens_is_named() -> None:
    with pytest.raises(ContextUnavailableError, match="no Dask scheduler answers at nonsense://127"):
        create_job_ctx("dask", address="nonsense://127.0.0.1:1")


def test_to_import_fray_imports_no_dask() -> None:
    program = "import sys, fray.job; fray.job.get_job_context(); print('distributed' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


def test_resources_are_those_of_the_cluster(ctx: JobContext) -> None:
    assert ctx.run(abs, -1, options=TaskOptions(resources={"gpu": 1})).result(PATIENCE) == 1
    with pytest.raises(UnschedulableError, match="GPU: 2"):
        ctx.run(abs, -1, options=TaskOptions(resources={"GPU": 2})).result(PATIENCE)


def test_large_values_go_from_task_to_task(ctx: JobContext) -> None:
    size = 3_000_000
    put = ctx.put(b"x" * size)
    assert ctx.run(len, put).result(PATIENCE) == size
    made = ctx.run(bytes, size)
    assert ctx.run(len, made).result(PATIENCE) == size
    assert ctx.run(len, b"y" * size).result(PATIENCE) == size

    def give() -> Iterator[bytes]:
        for _ in range(3):
            yield b"z" * size

    items: Any = ctx.run(give)
    assert [len(item) for item in items] == [size] * 3


def test_large_items_stay_until_a_slow_reader_takes_them(ctx: JobContext) -> None:
    def give() -> Iterator[bytes]:
        for _ in range(100):
            yield b"z" * 100_000

    items: Any = ctx.run(give)
    first = next(items)
    time.sleep(1)  # in which Dask would forget those that nobody keeps
    assert [len(item) for item in (first, *items)] == [100_000] * 100


def test_the_result_of_a_call_goes_on_to_others(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter)
    first = counter.add()

    def add_one(refs: list[Any], value: int) -> int:
        total: int = get_job_context().get(refs[0]) + value
        return total

    assert ctx.run(add_one, [first], counter.add()).result(PATIENCE) == 3


def test_an_actor_that_loses_its_process_is_dead(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter, name="mortal")
    assert counter.add().result(PATIENCE) == 1
    last, after = counter.end(), counter.add()
    for call in (last, after, counter.add()):
        with pytest.raises(ActorDiedError, match="mortal"):
            call.result(PATIENCE)
    assert ctx.create_actor(Counter).add().result(PATIENCE) == 1


def test_a_task_that_ends_its_workers_gives_up(ctx: JobContext, tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError, match="end_worker"):
        ctx.run(end_worker, tmp_path / "runs").result(PATIENCE)
    assert (tmp_path / "runs").read_text() == "!"
    assert ctx.run(abs, -1).result(PATIENCE) == 1


JOINS = """
from distributed import Client
from fray.job import create_job_ctx, get_job_context

def which():
    return repr(get_job_context())

if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        with create_job_ctx("auto") as ctx:
            assert "dask" in repr(ctx)
            assert ctx.run(which).result(60) == repr(ctx)
            actor = ctx.create_actor(list, [1, 2])
            assert actor.count(1).result(60) == 1
        assert client.submit(len, "abc").result(60) == 3
        assert "dask" in client.submit(which).result(60)
    print("joined")
"""


def test_auto_takes_the_client_that_the_process_has(tmp_path: Path) -> None:
    """In a task of Dask's own, too; a cluster of others needs no roles, and stays when the context ends."""
    script = tmp_path / "joins.py"
    script.write_text(JOINS)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=250)
    assert ran.stdout == "joined\n", ran.stderr


def test_nothing_stays_behind() -> None:
    context = create_job_ctx("dask", max_workers=1)
    pids = {context.run(os.getpid).result(PATIENCE), context.create_actor(Counter).pid().result(PATIENCE)}
    assert len(pids) == 2
    context.shutdown()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
