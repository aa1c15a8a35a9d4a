"""Simulated workers that honour the protocol: slots, blocked tasks, generators, actors, lost files."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from fray.runtime.pool.messages.commands import (
    CancelTask,
    CreateActor,
    Deliver,
    DeliverItems,
    EndActor,
    ReclaimTasks,
    ResumeGenerator,
    RunTask,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    ActorEnded,
    ActorReady,
    FetchFailed,
    ItemsProduced,
    ObjectCopied,
    ObjectsWanted,
    RefsReleased,
    TaskBegun,
    TaskBlocked,
    TaskDone,
    TasksReturned,
    TaskSubmitted,
    TaskUnblocked,
    WorkerJoined,
)
from fray.runtime.pool.messages.specs import (
    CLIENT_BITS,
    DRIVER,
    Failed,
    Profile,
    Stored,
    TaskSpec,
    Value,
)

RAISED = Failed(b"raised")
FUNCTIONS = (b"fast", b"slow", b"other")
SECONDS = {b"fast": 20e-6, b"slow": 2.0, b"other": 300e-6, b"": 0.0}
CPU = (("CPU", 1.0),)
SHAPES = (
    CPU,
    (("CPU", 2.0),),
    (("CPU", 0.5),),
    (),
    (*CPU, ("GPU", 1.0)),
    (("GPU", 1.0),),
    (("CPU", 0.5), ("memory", 10.0)),
)
PROFILES = (Profile(), Profile((("A", "1"),)), Profile((), 2))


@dataclass
class Run:
    """A task or call in a worker. `awaits`: objects without which it doesn't go on."""

    command: RunTask
    blocked: bool = False
    awaits: set[int] = field(default_factory=set)
    children: list[int] = field(default_factory=list)
    items: int = 0
    failed: bool = False


@dataclass
class Process:
    """A worker that honours the protocol."""

    id: int
    host: int
    profile: Profile
    inbox: deque[Any] = field(default_factory=deque)
    outbox: deque[Any] = field(default_factory=deque)
    joined: bool = False
    running: dict[int, Run] = field(default_factory=dict)
    calls: dict[int, Run] = field(default_factory=dict)
    waiting: list[RunTask] = field(default_factory=list)
    actors: dict[int, int] = field(default_factory=dict)
    functions: set[bytes] = field(default_factory=set)
    count: int = 0
    stopping: bool = False

    def new_id(self) -> int:
        self.count += 1
        return (self.id << CLIENT_BITS) + self.count


class WorkerSide:
    """What workers do, one small step at a time; `rng` decides which."""

    rng: random.Random
    files: dict[int, set[int]]
    copies: set[tuple[int, int]]
    starts: Counter[int]
    uncharged: Counter[int]

    def tell(self, source: int, event: Any) -> None:
        raise NotImplementedError

    def end(self, process: Process, reason: str, *, expected: bool = False) -> None:
        raise NotImplementedError

    def choices_of(self, process: Process) -> list[Any]:
        if not process.joined:
            return [lambda: self.join(process)]
        found: list[Any] = []
        if process.outbox:
            found.append(lambda: self.tell(process.id, process.outbox.popleft()))
        if process.inbox:
            found.append(lambda: self.obey(process, process.inbox.popleft()))
        runs = (*process.running.values(), *process.calls.values())
        found += [lambda run=run: self.go_on(process, run) for run in runs if not run.awaits]
        if process.stopping and not (process.running or process.waiting or process.calls or process.outbox):
            found.append(lambda: self.end(process, "ended", expected=True))
        return found

    def join(self, process: Process) -> None:
        process.joined = True
        self.tell(DRIVER, WorkerJoined(process.id))

    def obey(self, process: Process, command: Any) -> None:  # noqa: C901, PLR0912
        if isinstance(command, RunTask):
            spec = command.spec
            if spec.actor:
                assert spec.actor in process.actors
                self.begin(process, command)
                return
            assert command.blob or spec.function in process.functions
            process.functions.add(spec.function)
            if command.waits and any(not run.blocked for run in process.running.values()):
                process.waiting.append(command)
            else:
                if command.waits:
                    process.outbox.append(TaskBegun(spec.id))
                self.begin(process, command)
        elif isinstance(command, ReclaimTasks):
            given = process.waiting[-command.most :] if command.most else []
            del process.waiting[len(process.waiting) - len(given) :]
            process.outbox.append(TasksReturned(tuple(run.spec.id for run in given)))
        elif isinstance(command, CancelTask):
            waiting = [run for run in process.waiting if run.spec.id == command.id]
            for run in waiting:
                process.waiting.remove(run)
                process.outbox.append(TaskDone(run.spec.id, RAISED))
            if command.id in process.running and self.rng.random() < 0.7:
                process.running[command.id].failed = True
                process.running[command.id].awaits.clear()
        elif isinstance(command, CreateActor):
            process.functions.add(command.spec.function)
            if self.rng.random() < 0.1:
                process.outbox.append(ActorEnded(command.spec.id, command.incarnation, RAISED))
            else:
                process.actors[command.spec.id] = command.incarnation
                process.outbox.append(ActorReady(command.spec.id, command.incarnation))
        elif isinstance(command, EndActor):
            process.actors.pop(command.actor, None)
            process.calls = {
                key: run for key, run in process.calls.items() if run.command.spec.actor != command.actor
            }
            process.outbox.append(ActorEnded(command.actor, command.incarnation))
        elif isinstance(command, Deliver):
            self.take_at(process, command)
        elif isinstance(command, StopWorker):
            process.stopping = True
        elif isinstance(command, DeliverItems):
            process.outbox.append(RefsReleased(tuple(item for item, _ in command.items)))
        else:
            assert isinstance(command, ResumeGenerator), command

    def begin(self, process: Process, command: RunTask) -> None:
        spec = command.spec
        run = Run(command, items=command.skip)
        (process.calls if spec.actor else process.running)[spec.id] = run
        self.starts[spec.id] += 1
        allowed = 1 + spec.retries + spec.retry_exceptions + self.uncharged[spec.id]
        assert spec.actor or self.starts[spec.id] <= allowed, f"task {spec.id} ran too often"
        for dep, outcome in zip(spec.deps, command.deps, strict=True):
            if isinstance(outcome, Stored) and dep not in self.files.get(outcome.host, ()):
                run.awaits.add(dep)
                process.outbox.append(FetchFailed(dep, outcome.host, "no such file"))
            elif isinstance(outcome, Stored) and outcome.host != process.host:
                if self.rng.random() < 0.2:
                    run.awaits.add(dep)
                    process.outbox.append(FetchFailed(dep, outcome.host, "no route"))
                elif process.host in self.files:
                    self.files[process.host].add(dep)
                    self.copies.add((process.host, dep))
                    process.outbox.append(ObjectCopied(dep, process.host, outcome.size))
        if run.awaits:
            self.block(process, run)

    def block(self, process: Process, run: Run) -> None:
        run.blocked = True
        started = 0 if run.command.spec.actor else self.next_waiting(process)
        process.outbox.append(TaskBlocked(run.command.spec.id, started))

    def next_waiting(self, process: Process) -> int:
        if not process.waiting:
            return 0
        command = process.waiting.pop(0)
        # It's told as started before it may say anything itself.
        process.inbox.appendleft(command._replace(waits=False))
        return command.spec.id

    def take_at(self, process: Process, message: Deliver) -> None:
        outcome = message.outcome
        lost = isinstance(outcome, Stored) and message.id not in self.files.get(outcome.host, ())
        for run in (*process.running.values(), *process.calls.values()):
            if message.id in run.awaits:
                if lost:
                    process.outbox.append(FetchFailed(message.id, outcome.host, "no such file"))
                    return
                run.awaits.discard(message.id)
                run.failed = run.failed or isinstance(outcome, Failed)

    def go_on(self, process: Process, run: Run) -> None:
        spec = run.command.spec
        if run.blocked:
            run.blocked = False
            process.outbox.append(TaskUnblocked(spec.id))
            return
        roll = self.rng.random()
        if not run.failed and spec.streaming and run.items < 4 and roll < 0.7:
            item = process.new_id()
            process.outbox.append(ItemsProduced(spec.id, run.items, ((item, self.make(process, item)),)))
            run.items += 1
        elif not run.failed and roll < 0.1 and len(run.children) < 2 and not spec.actor:
            child = TaskSpec(process.new_id(), b"other", b"()", "child", parent=spec.id)
            run.children.append(child.id)
            process.outbox.append(TaskSubmitted(child, b"blob"))
            if self.rng.random() < 0.7:
                process.outbox.append(ObjectsWanted((child.id,)))
                run.awaits.add(child.id)
                self.block(process, run)
        else:
            self.finish(process, run, roll)

    def finish(self, process: Process, run: Run, roll: float) -> None:
        spec = run.command.spec
        del (process.calls if spec.actor else process.running)[spec.id]
        if run.children:
            process.outbox.append(RefsReleased(tuple(run.children)))
        raised = run.failed or roll > 0.95
        outcome = RAISED if raised else self.make(process, spec.id)
        started = 0 if spec.actor else self.next_waiting(process)
        done = TaskDone(spec.id, outcome, started, 0.0, SECONDS[spec.function], retry=raised and roll > 0.97)
        process.outbox.append(done)

    def make(self, process: Process, object_id: int) -> Value:
        if self.rng.random() < 0.6:
            return b"value"
        self.files[process.host].add(object_id)
        return Stored(process.host, self.rng.choice((10, 60)))
