"""A `PoolState` driven by hand: `tell` an event, get the commands; all invariants are checked after each."""

from __future__ import annotations

from typing import Any

from fray.runtime.pool.messages.commands import Command, StartWorker
from fray.runtime.pool.messages.events import HostJoined, TaskSubmitted, WorkerJoined
from fray.runtime.pool.messages.specs import DRIVER, ActorSpec, Inline, Profile, TaskSpec
from fray.runtime.pool.state import PoolState

ONE = Inline(b"1")
FAST = 20e-6
"""Seconds of a task: many of its kind may be sent ahead."""


def make_task(task_id: int, **more: Any) -> TaskSpec:
    return TaskSpec(task_id, more.pop("function", b"f"), b"args", f"task {task_id}", **more)


def make_actor(actor_id: int, **more: Any) -> ActorSpec:
    return ActorSpec(actor_id, b"c", b"args", more.pop("name", ""), "Counter", **more)


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

    def submit(self, task_id: int, client: int = DRIVER, **more: Any) -> list[Command]:
        return self.tell(client, TaskSubmitted(make_task(task_id, **more), b"blob"))
