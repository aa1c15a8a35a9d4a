"""A `PoolState` driven by hand: `tell` an event, get the commands; all invariants are checked after each."""

from __future__ import annotations

from typing import Any, TypeVar

from fray.runtime.pool.messages.commands import Command, CreateActor, RunTask, StartWorker
from fray.runtime.pool.messages.events import HostJoined, TaskSubmitted, WorkerJoined
from fray.runtime.pool.messages.specs import DRIVER, ActorSpec, Profile, TaskSpec
from fray.runtime.pool.state import PoolState

AnyCommand = TypeVar("AnyCommand", RunTask, CreateActor)
A = 500
"""The actor that calls are of, where a test says nothing else."""
ONE = b"1"
FAST = 20e-6
"""Seconds of a task: many of its kind may be sent ahead."""


def make_task(task_id: int, **more: Any) -> TaskSpec:
    return TaskSpec(task_id, more.pop("function", b"f"), b"args", f"task {task_id}", **more)


def make_actor(actor_id: int, **more: Any) -> ActorSpec:
    return ActorSpec(actor_id, b"c", b"args", more.pop("name", ""), "Counter", **more)


def make_call(task_id: int, *, deps: tuple[int, ...] = (), parent: int = 0, actor: int = A) -> TaskSpec:
    return TaskSpec(
        task_id,
        b"",
        b"args",
        "Counter.add",
        deps=deps,
        holds=deps,
        parent=parent,
        shape=(),
        retries=0,
        actor=actor,
        method="add",
    )


class Script:
    """One pool; `hosts` gives the CPUs of each, whose workers have joined."""

    def __init__(self, *hosts: int) -> None:
        self.state = PoolState()
        self.now = 100.0
        for number, cpus in enumerate(hosts, start=1):
            self.join_host(number, cpus)

    def tell(self, source: int, event: Any) -> list[Command]:
        commands = self.state.handle(source, event, self.now)
        self.state.check()
        return commands

    def join_host(self, host: int, cpus: int, store_limit: int = 1000, **more: float) -> None:
        resources = (("CPU", float(cpus)), *more.items())
        joined = HostJoined(host, f"host-{host}", resources, cpus, store_limit)
        commands = self.tell(DRIVER, joined)
        for command in commands:
            assert isinstance(command, StartWorker)
            assert command == StartWorker(host, command.worker, Profile())
            assert self.tell(DRIVER, WorkerJoined(command.worker)) == []

    def join_host_with_work(self, host: int, cpus: int = 1) -> RunTask:
        """Let a host join for which a task waits; return its start."""
        return self._join_for(host, cpus, RunTask)

    def join_host_with_actor(self, host: int, cpus: int = 1) -> int:
        """Let a host join for which an actor waits; return its worker."""
        return self._join_for(host, cpus, CreateActor).worker

    def _join_for(self, host: int, cpus: int, kind: type[AnyCommand]) -> AnyCommand:
        joined = HostJoined(host, f"host-{host}", (("CPU", float(cpus)),), cpus, 1000)
        commands = self.tell(DRIVER, joined)
        for command in [each for each in commands if isinstance(each, StartWorker)]:
            commands += self.tell(DRIVER, WorkerJoined(command.worker))
        [found] = [each for each in commands if isinstance(each, kind)]
        return found

    def submit(self, task_id: int, client: int = DRIVER, **more: Any) -> list[Command]:
        return self.tell(client, TaskSubmitted(make_task(task_id, **more), b"blob"))
