"""Stores in trouble: locks that are held, directories that vanish, disks without room. The pool goes on."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fray.errors import StoreFullError, WorkerDiedError
from fray.job import JobContext, TaskOptions
from fray.runtime.pool.objects.store import HostStore
from tests.pool.chaos.disk import small_disk
from tests.pool.chaos.inspection import pool_of, settles
from tests.pool.faults import values

MIB = 1024**2
PATIENCE = 60.0
HOLD = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def die() -> None:
    os._exit(1)


def store_of(ctx: JobContext) -> HostStore:
    return pool_of(ctx).objects._store


def test_a_process_that_holds_the_stores_lock_stops_nobody_else(
    make_pool: Callable[..., JobContext],
) -> None:
    ctx = make_pool(1)
    store = store_of(ctx)
    ref = ctx.put(bytes(MIB))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.directory / "usage")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        del ref
        assert settles(lambda: store.usage().memory == 0)
        assert ctx.get(ctx.run(pow, 2, 5), timeout=PATIENCE) == 32
        # The nanny finds what it left, and starts another.
        with pytest.raises(WorkerDiedError):
            ctx.get(ctx.run(die, options=TaskOptions(retries=0)), timeout=PATIENCE)
        assert ctx.get(ctx.run(pow, 2, 5), timeout=PATIENCE) == 32
        holder.communicate()
    assert len(ctx.get(ctx.put(bytes(MIB)))) == MIB


def test_a_spill_directory_that_vanishes_costs_what_lay_there(make_pool: Callable[..., JobContext]) -> None:
    ctx = make_pool(2, 4 * MIB)
    actor = ctx.create_actor(Counter)
    assert ctx.get(actor.add()) == 1
    made = ctx.run(values.make_bytes, 6 * MIB)
    ctx.wait([made])
    kept = ctx.put(bytes(MIB))
    shutil.rmtree(store_of(ctx).spill_directory)
    with pytest.raises(WorkerDiedError):
        ctx.get(ctx.run(die, options=TaskOptions(retries=0)), timeout=PATIENCE)
    assert ctx.get(ctx.run(pow, 2, 5), timeout=PATIENCE) == 32
    assert len(ctx.get(kept)) == MIB
    # There's no room for these in memory: a worker's, and the driver's own.
    later = ctx.run(values.make_bytes, 6 * MIB)
    mine = ctx.put(bytes(5 * MIB))
    assert len(ctx.get(later, timeout=PATIENCE)) == 6 * MIB
    assert len(ctx.get(mine)) == 5 * MIB
    assert store_of(ctx).usage().disk >= 11 * MIB
    assert len(ctx.get(made, timeout=PATIENCE)) == 6 * MIB  # what lay there is made again
    assert ctx.get(actor.add(), timeout=PATIENCE) == 2


class Holder:
    def hold(self, value: object) -> None:
        self.value = value

    def drop(self) -> None:
        del self.value


def test_a_disk_that_turns_read_only_is_warned_about_by_one_process(
    make_pool: Callable[..., JobContext],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with small_disk(tmp_path / "disk", size=32 * MIB) as disk:
        if disk is None:
            pytest.skip("mounting a file system needs root")
        monkeypatch.setenv("FRAY_SPILL_DIR", str(disk.path))
        ctx = make_pool(1, 4 * MIB)
        ref = ctx.put(np.zeros(5 * MIB, np.uint8))
        holder = ctx.create_actor(Holder)
        ctx.get(holder.hold(ref), timeout=PATIENCE)
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True, timeout=60)
        ctx.get(holder.drop(), timeout=PATIENCE)  # its link to the file stays there
        del ref  # and so does the file
        gc.collect()
        with pytest.raises(StoreFullError):
            ctx.put(bytes(6 * MIB))
        ctx.shutdown()
        told = [*capfd.readouterr().err.splitlines(), *(record.message for record in caplog.records)]
        assert sum("Read-only" in line for line in told) == 1, told


def test_a_spill_directory_that_became_a_file_costs_what_lay_there(
    make_pool: Callable[..., JobContext],
) -> None:
    ctx = make_pool(1, 4 * MIB)
    actor = ctx.create_actor(Counter)
    assert ctx.get(actor.add()) == 1
    lost = [ctx.put(bytes(6 * MIB)), ctx.run(values.make_bytes, 6 * MIB)]
    ctx.wait(lost, num_returns=2)
    kept = ctx.put(bytes(MIB))
    home = store_of(ctx).spill_directory
    shutil.rmtree(home)
    home.touch(mode=0o600)
    del lost  # freed by the driver and by the nanny
    assert len(ctx.get(kept)) == MIB
    with pytest.raises(WorkerDiedError):
        ctx.get(ctx.run(die, options=TaskOptions(retries=0)), timeout=PATIENCE)
    assert ctx.get(actor.add(), timeout=PATIENCE) == 2
    assert ctx.get(ctx.run(pow, 2, 5), timeout=PATIENCE) == 32
    with pytest.raises(StoreFullError):
        ctx.put(bytes(6 * MIB))
    ctx.shutdown()
    home.unlink()
