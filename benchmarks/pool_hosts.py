"""How the head of a pool does with many hosts: real messages over TLS, from hosts that only pretend to work.

    .venv/bin/python -m benchmarks.pool_hosts [--hosts N] [--slots N] [--tasks N]

Three processes: the head as it runs in pods; one that plays all hosts, each with a connection of its nanny
and one of each worker; and this one, a client. A task takes 100 ms of a slot, and no processor. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pool.machine import describe_machine
from benchmarks.pool.process_memory import read_memory
from fray.job.context import JobContext
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.pool_owner import LocalOwner
from fray.payload.stamp import Stamp
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.message_codec import MESSAGES, STAMP, decode_messages, encode_messages
from fray.runtime.pool.messages.commands import ReclaimTasks, RunTask, StartWorker
from fray.runtime.pool.messages.events import TaskBegun, TaskDone, TasksReturned
from fray.runtime.pool.messages.greetings import NannyHello, WorkerHello
from fray.runtime.pool.messages.specs import ObjectId
from fray.runtime.pool.objects.values import encode
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Connection, connect
from fray.runtime.pool.transport.frames import Frame
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.transport.certificates import write_key

ROOT = Path(__file__).parents[1]
TASK_SECONDS = 0.1
RESULT = encode(None).to_bytes()
AT_ONCE = 16
"""Connections that are made at a time: the head cuts off a source that opens too many."""
START_SECONDS = 600.0
GOALS = {"tasks_per_second": 5_000, "head_peak_mib": 1_024}


class _Worker:
    """Plays a worker with one slot: a task is over after its time, the next one follows it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[ObjectId] = deque()
        self._running: ObjectId = 0
        self._loop = asyncio.get_running_loop()

    def hear(self, frame: Frame) -> None:
        for message in decode_messages(frame.body):
            if type(message) is RunTask:
                self._take(message)
            elif type(message) is ReclaimTasks:
                taken = [self._waiting.pop() for _ in range(min(message.most, len(self._waiting)))]
                self._tell(TasksReturned(tuple(taken)))

    def _take(self, command: RunTask) -> None:
        if self._running:
            self._waiting.append(command.spec.id)
            return
        if command.waits:
            self._tell(TaskBegun(command.spec.id))
        self._begin(command.spec.id)

    def _begin(self, task: ObjectId) -> None:
        self._running = task
        self._loop.call_later(TASK_SECONDS, self._end, task, time.time())

    def _end(self, task: ObjectId, began: float) -> None:
        following = self._waiting.popleft() if self._waiting else 0
        self._running = 0
        self._tell(TaskDone(task, RESULT, following, began, TASK_SECONDS))
        if following:
            self._begin(following)

    def _tell(self, message: Any) -> None:
        self._connection.send(MESSAGES, encode_messages([message]), at_once=True)


class _Hosts:
    """Plays all hosts of a pool on one event loop."""

    def __init__(self, head: Address, key: TransportKey, *, slots: int) -> None:
        self._head, self._key, self._slots = head, key, slots
        self._places = asyncio.Semaphore(AT_ONCE)
        self._connecting: set[asyncio.Task[None]] = set()
        self.lost = asyncio.Event()

    async def join(self, number: int) -> None:
        """Let one host join."""
        resources = (("CPU", float(self._slots)), ("memory", float(1 << 34)))
        hello = NannyHello(0, f"host-{number}", resources, self._slots, 1 << 30, f"tcp:10.0.0.1:{number + 1}")
        await self._connect([hello], self._hear_nanny, stamp=True)

    def _hear_nanny(self, _: Connection, frame: Frame) -> None:
        for message in decode_messages(frame.body):
            if type(message) is StartWorker:
                starting = asyncio.create_task(self._start(message))
                self._connecting.add(starting)
                starting.add_done_callback(self._connecting.discard)

    async def _start(self, command: StartWorker) -> None:
        hear = None

        def on_frame(connection: Connection, frame: Frame) -> None:
            nonlocal hear
            hear = hear or _Worker(connection).hear
            hear(frame)

        await self._connect([WorkerHello(command.worker, 1)], on_frame, stamp=False)

    async def _connect(self, hello: list[Any], hear: Any, *, stamp: bool) -> None:
        def begin(connection: Connection) -> None:
            connection.on_frame = partial(hear, connection)
            connection.on_lost = lambda _: self.lost.set()

        async with self._places:
            connection = await connect(self._head, self._key, begin)
        if stamp:
            connection.send(STAMP, Stamp.here().to_json().encode())
        connection.send(MESSAGES, encode_messages(hello))


async def _be_hosts(head: Address, key: TransportKey, hosts: int, slots: int) -> None:
    played = _Hosts(head, key, slots=slots)
    await asyncio.gather(*map(played.join, range(hosts)))
    await played.lost.wait()


def _nothing() -> None:
    """What a task is called for: those who play workers never call it."""


@contextmanager
def _running(*words: str, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=stdout, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _read_processor_seconds(pid: int) -> float:
    # proc_pid_stat(5): utime and stime are the 14th and 15th field; the name may have spaces.
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / 100


def measure(hosts: int, slots: int, tasks: int) -> dict[str, object]:
    """Start everything, run tasks, and return the figures."""
    with tempfile.TemporaryDirectory(prefix="fray-hosts-") as folder:
        directory = write_key(Path(folder, "key"))
        head_words = ("-m", "fray.runtime.pool.head", "--listen", "tcp:127.0.0.1:0", "--key", str(directory))
        with _running(*head_words, stdout=subprocess.PIPE) as head:
            assert head.stdout is not None
            address = head.stdout.readline().split()[-1]
            words = ("-m", "benchmarks.pool_hosts", "--hosts", str(hosts), "--slots", str(slots))
            began = time.monotonic()
            with _running(*words, "--be-hosts-of", address, "--key", str(directory)) as played:
                key = TransportKey.load(directory)
                offer = ClientHost(open_store(None, {}), None)
                pool = JoinedPool(Address.parse(address), key, offer, environ={})
                session = PoolSession(pool.token, pool.client, pool.objects)
                with JobContext(PoolEngine(session, LocalOwner(pool))) as context:
                    _await_slots(pool, hosts * slots)
                    joined = time.monotonic() - began
                    pids = {"head": head.pid, "hosts": played.pid, "client": os.getpid()}
                    figures = _run_tasks(context, pids, tasks, warm=hosts * slots)
                head.terminate()  # before the hosts: their end is not what is measured
                head.wait()
        return {
            **describe_machine(),
            "hosts": hosts,
            "slots": hosts * slots,
            "all_joined_seconds": round(joined, 1),
            **figures,
            "goals": GOALS,
        }


def _await_slots(pool: JoinedPool, slots: int) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while sum(host.workers for host in pool.stats().hosts.values()) < slots:
        if time.monotonic() > give_up_at:
            raise AssertionError("the hosts haven't joined")
        time.sleep(1.0)


def _run_tasks(context: JobContext, pids: dict[str, int], tasks: int, *, warm: int) -> dict[str, object]:
    context.get([context.run(_nothing) for _ in range(warm)])  # each worker has the function now
    before = {name: _read_processor_seconds(pid) for name, pid in pids.items()}
    began = time.monotonic()
    results = context.get([context.run(_nothing) for _ in range(tasks)])
    seconds = time.monotonic() - began
    if results != [None] * tasks:
        raise AssertionError("a task has another result")
    return {
        "tasks": tasks,
        "tasks_per_second": round(tasks / seconds),
        "processor_microseconds_per_task": {
            name: round((_read_processor_seconds(pid) - before[name]) / tasks * 1e6, 1)
            for name, pid in pids.items()
        },
        "head_peak_mib": round(read_memory("VmHWM", pid=pids["head"]) / 2**20),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--slots", type=int, default=4, help="of each host")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--be-hosts-of", help=argparse.SUPPRESS)
    parser.add_argument("--key", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_hosts_of is not None:
        head, key = Address.parse(options.be_hosts_of), TransportKey.load(options.key)
        asyncio.run(_be_hosts(head, key, options.hosts, options.slots))
    else:
        print(json.dumps(measure(options.hosts, options.slots, options.tasks), indent=2))


if __name__ == "__main__":
    main()
