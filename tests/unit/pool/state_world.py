"""A world around a `PoolState`, driven by chance: a driver, workers and hosts that honour the protocol.

Messages travel in order on each connection and as late as chance wants. Workers die, hosts vanish, tasks
block, raise, submit others and cancel each other at any moment. After every event all invariants are checked.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

from fray.runtime.pool.messages.commands import (
    AnswerActor,
    CheckObject,
    CopyObject,
    Deliver,
    DeliverItems,
    DropTimer,
    FreeObject,
    ReclaimTasks,
    ReleaseHost,
    RunTask,
    SetTimer,
    SpillObject,
    StartWorker,
    StopWorker,
)
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    ClientLost,
    FetchFailed,
    HostJoined,
    HostLeaving,
    HostLost,
    HostStaying,
    ItemsConsumed,
    ItemsProduced,
    KillActor,
    ObjectChecked,
    ObjectCopied,
    ObjectPut,
    ObjectRelayed,
    ObjectSpilled,
    ObjectsWanted,
    RefsReleased,
    TaskBegun,
    TaskCancelled,
    TaskDone,
    TasksReturned,
    TaskSubmitted,
    TimerFired,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, ActorSpec, Inline, Profile, Stored, TaskSpec, Value
from fray.runtime.pool.state import PoolState
from tests.unit.pool.state_processes import (
    FUNCTIONS,
    PROFILES,
    SHAPES,
    Process,
    WorkerSide,
)


class World(WorkerSide):
    """The state machine and everything around it; `rng` decides what happens next."""

    def __init__(self, seed: int, *, hosts: int = 2, faults: bool = True) -> None:
        self.rng = random.Random(seed)
        self.state = PoolState()
        self.faults = faults
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.files: dict[int, set[int]] = {}
        self.copies: set[tuple[int, int]] = set()
        self.untold: set[int] = set()
        self.timers: list[tuple[float, tuple[str, int]]] = []
        self.inbox: deque[Any] = deque()
        self.outbox: deque[Any] = deque()
        self.shell: deque[Any] = deque()
        self.refs: dict[int, str] = {}
        self.wanted: set[int] = set()
        self.known: dict[int, Any] = {}
        self.items: dict[int, list[int]] = {}
        self.actors: dict[int, ActorSpec] = {}
        self.named: set[int] = set()
        self.starts: Counter[int] = Counter()
        self.uncharged: Counter[int] = Counter()
        self.leaving: set[int] = set()
        self.released: list[int] = []
        self.next_id = 0
        self.next_host = 0
        for _ in range(hosts):
            self.add_host()

    # --- the head -------------------------------------------------------------------------------------

    def tell(self, source: int, event: Any) -> None:
        self.now += self.rng.choice((0.0, 0.001, 0.05))
        commands = self.state.handle(source, event, self.now)
        self.state.check()
        if isinstance(event, TasksReturned) and not event.ids and source in self.processes:
            # What has nothing to give isn't asked again before it was sent more: it would go on for ever.
            sent = [*self.processes[source].inbox, *commands]
            waiting = any(type(each) is RunTask and each.waits and each.worker == source for each in sent)
            waiting |= any(type(each) is TaskBegun for each in self.processes[source].outbox)
            asked = any(type(each) is ReclaimTasks and each.worker == source for each in commands)
            begun = any(type(each) is TaskBegun for each in self.processes[source].outbox)
            assert waiting or begun or not asked, f"worker {source} is asked again and again"
        for command in commands:
            self.carry_out(command)

    def carry_out(self, command: Any) -> None:
        if isinstance(command, SetTimer | DropTimer):
            self.set_timer(command)
        elif isinstance(command, StartWorker):
            assert command.worker not in self.processes
            self.processes[command.worker] = Process(command.worker, command.host, command.profile)
        elif isinstance(command, StopWorker):
            process = self.processes.get(command.worker)
            if process is not None and command.kill:
                untold = [event.id for event in process.outbox if isinstance(event, TaskDone)]
                self.uncharged.update([*process.running, *untold])
                self.end(process, command.reason, expected=True)
            elif process is not None:
                process.inbox.append(command)
        elif isinstance(command, ReleaseHost | FreeObject):
            self.carry_out_on_host(command)
        elif isinstance(command, SpillObject | CheckObject | CopyObject):
            self.shell.append(self.answer(command))
        elif isinstance(command, Deliver | DeliverItems | AnswerActor):
            if command.client == DRIVER:
                self.inbox.append(command)
            elif command.client in self.processes:
                self.processes[command.client].inbox.append(command)
        elif command.worker in self.processes:
            self.processes[command.worker].inbox.append(command)

    def carry_out_on_host(self, command: ReleaseHost | FreeObject) -> None:
        if isinstance(command, FreeObject):
            self.files[command.host].discard(command.id)
            return
        assert command.host in self.leaving
        there = [process for process in self.processes.values() if process.host == command.host]
        assert not any(process.running for process in there), "tasks run there"
        self.released.append(command.host)

    def set_timer(self, command: SetTimer | DropTimer) -> None:
        if isinstance(command, SetTimer):
            self.timers.append((self.now + command.seconds, command.key))
        else:
            self.timers = [timer for timer in self.timers if timer[1] != command.key]

    def answer(self, command: SpillObject | CheckObject | CopyObject) -> Any:
        if isinstance(command, SpillObject):
            return ObjectSpilled(command.id, command.host, done=self.rng.random() < 0.8)
        if isinstance(command, CheckObject):
            self.copies.discard((command.host, command.id))
            return ObjectChecked(command.id, command.host, command.id in self.files[command.host])
        # The driver's own host is any one here.
        host = self.rng.choice(list(self.files))
        if host == command.host or command.id not in self.files[command.host] or self.rng.random() < 0.3:
            return ObjectRelayed(command.id, host, 0)
        self.files[host].add(command.id)
        self.copies.add((host, command.id))
        return ObjectRelayed(command.id, host, 10)

    def add_host(self) -> None:
        self.next_host += 1
        self.files[self.next_host] = set()
        resources = (("CPU", 2.0), ("GPU", 1.0)) if self.next_host % 2 else (("CPU", 3.0), ("memory", 20.0))
        self.tell(
            DRIVER, HostJoined(self.next_host, f"h{self.next_host}", resources, int(resources[0][1]), 100)
        )

    def end(self, process: Process, reason: str, *, expected: bool = False) -> None:
        """A process dies: what it said last may still arrive, before or after the news of its death."""
        del self.processes[process.id]
        for event in process.outbox:
            items = event.items if isinstance(event, ItemsProduced) else ()
            if isinstance(event, ObjectPut):
                items = ((event.id, event.outcome),)
            self.untold.update(item for item, outcome in items if isinstance(outcome, Stored))
        if self.rng.random() < 0.5:
            while process.outbox:
                self.shell.append((process.id, process.outbox.popleft()))
        retired = expected and self.rng.random() < 0.5
        self.shell.append(WorkerLost(process.id, reason, expected, retired))
        if self.rng.random() < 0.5:
            while process.outbox:
                self.shell.append((process.id, process.outbox.popleft()))
        self.shell.append(ClientLost(process.id, retired))

    def lose_host(self, host: int) -> None:
        del self.files[host]
        for process in [process for process in self.processes.values() if process.host == host]:
            del self.processes[process.id]
            if host in self.leaving:
                untold = [event.id for event in process.outbox if isinstance(event, TaskDone)]
                self.uncharged.update([*process.running, *untold])
        self.shell = deque(
            event
            for event in self.shell
            if not (isinstance(event, ObjectSpilled | ObjectChecked) and event.host == host)
        )
        self.tell(DRIVER, HostLost(host, "unplugged"))

    def evict(self) -> None:
        """Remove a copy for want of room; its host says so some time later."""
        copies = sorted((host, key) for host, key in self.copies if key in self.files.get(host, ()))
        if copies:
            host, object_id = self.rng.choice(copies)
            self.copies.discard((host, object_id))
            self.files[host].discard(object_id)
            self.shell.append(ObjectCopied(object_id, host, 0))

    # --- one step ------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        roll = rng.random()
        if self.faults and roll < 0.012 and self.processes:
            self.end(rng.choice(list(self.processes.values())), "killed by signal 9 (SIGKILL)")
        elif self.faults and roll < 0.014 and len(self.files) > 1:
            self.lose_host(rng.choice(list(self.files)))
            self.add_host()
        elif self.faults and roll < 0.018 and len(self.files) > 1:
            host = rng.choice(list(self.files))
            self.leaving.add(host)
            self.tell(DRIVER, HostLeaving(host, "a spot node", recallable=rng.random() < 0.5))
            self.add_host()
        elif self.faults and roll < 0.02 and (recallable := self.state.list_recallable_hosts()):
            host = rng.choice(recallable)
            self.leaving.discard(host)
            self.tell(DRIVER, HostStaying(host))
        elif roll < 0.022:
            self.evict()
        elif roll < 0.25:
            self.drive()
        else:
            self.progress()

    def progress(self) -> bool:
        """Let something that is under way go on; return whether there was anything."""
        choices: list[Any] = []
        if self.shell:
            choices.append(self.pass_shell)
        if self.outbox:
            choices.append(lambda: self.tell(DRIVER, self.outbox.popleft()))
        if self.inbox:
            choices.append(lambda: self.take(self.inbox.popleft()))
        for process in self.processes.values():
            choices += self.choices_of(process)
        if any(host in self.files for host in self.released):
            choices.append(self.go)
        due = [timer for timer in self.timers if timer[0] <= self.now]
        if due:
            choices.append(lambda: self.fire(due[0]))
        if not choices and self.timers:
            timer = min(self.timers)
            self.now = max(self.now, timer[0])
            choices.append(lambda: self.fire(timer))
        if not choices:
            return False
        self.rng.choice(choices)()
        return True

    def fire(self, timer: tuple[float, tuple[str, int]]) -> None:
        self.timers.remove(timer)
        self.tell(DRIVER, TimerFired(timer[1]))

    def go(self) -> None:
        """Let a host go that may; it may also have been lost before."""
        host = self.released.pop()
        if host in self.files:
            self.lose_host(host)

    def pass_shell(self) -> None:
        event = self.shell.popleft()
        if type(event) is tuple:
            self.tell(*event)
        else:
            self.tell(DRIVER, event)

    # --- the driver -----------------------------------------------------------------------------------

    def drive(self) -> None:
        actions = (
            [self.submit] * 6
            + [self.submit_many]
            + [self.put, self.want, self.want, self.release, self.cancel, self.consume]
        )
        actions += [self.create, self.call, self.call, self.call, self.kill]
        self.rng.choice(actions)()

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def choose_deps(self) -> tuple[int, ...]:
        values = [key for key, kind in self.refs.items() if kind != "actor"]
        return tuple(self.rng.choice(values) for _ in range(self.rng.choice((0, 0, 1, 3))) if values)

    def submit(self, **more: Any) -> int:
        rng = self.rng
        deps = self.choose_deps()
        plain = rng.random() < 0.7
        spec = TaskSpec(
            self.new_id(),
            rng.choice(FUNCTIONS),
            b"args",
            "task",
            parent=rng.choice((0, 0, 77)),
            deps=deps,
            holds=deps,
            shape=SHAPES[0] if plain else rng.choice(SHAPES),
            profile=PROFILES[0] if plain else rng.choice(PROFILES),
            retries=rng.choice((0, 1, 3)),
            retry_exceptions=rng.choice((0, 0, 2)),
            timeout=rng.choice((0.0, 0.0, 0.0, 1.0)),
            streaming=rng.random() < 0.1,
        )._replace(**more)
        self.refs[spec.id] = "task"
        wanted = rng.random() < 0.4
        if wanted and rng.random() < 0.5:  # else the client may drop it before it's there
            self.wanted.add(spec.id)
        self.outbox.append(TaskSubmitted(spec, b"blob", wanted))
        return spec.id

    def submit_many(self) -> None:
        for number in range(10):
            parent = number % 2
            self.submit(
                function=b"fast", parent=parent, deps=(), holds=(), shape=SHAPES[0], profile=Profile()
            )

    def put(self) -> None:
        object_id = self.new_id()
        host = self.rng.choice(list(self.files))
        contained = self.choose_deps()
        outcome: Value = Inline(b"put", contained) if contained else b"put"
        if self.rng.random() < 0.5:
            self.files[host].add(object_id)
            outcome = Stored(host, 40, contained)
        self.refs[object_id] = "put"
        self.outbox.append(ObjectPut(object_id, outcome))

    def want(self) -> None:
        free = [key for key, kind in self.refs.items() if kind != "actor" and key not in self.wanted]
        if free:
            self.want_one(self.rng.choice(free))

    def want_one(self, object_id: int) -> None:
        self.wanted.add(object_id)
        self.known.pop(object_id, None)
        self.outbox.append(ObjectsWanted((object_id,)))

    def release(self) -> None:
        free = [key for key in self.refs if key not in self.wanted]
        if free:
            self.release_one(self.rng.choice(free))

    def release_one(self, object_id: int) -> None:
        kind = self.refs.pop(object_id)
        self.known.pop(object_id, None)
        if kind == "actor":
            self.actors.pop(object_id, None)
        self.outbox.append(RefsReleased((object_id,)))

    def cancel(self) -> None:
        tasks = [key for key, kind in self.refs.items() if kind == "task"]
        if tasks and self.rng.random() < 0.5:
            self.outbox.append(TaskCancelled(self.rng.choice(tasks), self.rng.random() < 0.3))

    def consume(self) -> None:
        for task, items in self.items.items():
            if items and task in self.refs:
                self.outbox.append(ItemsConsumed(task, len(items)))
                return

    def create(self) -> None:
        rng = self.rng
        if len(self.actors) > 5:
            return
        deps = self.choose_deps()
        spec = ActorSpec(
            self.new_id(),
            b"class",
            b"()",
            rng.choice(("", "", "one", "two")),
            "Class",
            deps=deps,
            holds=deps,
            shape=rng.choice(((), (), (("CPU", 1.0),))),
            isolated=rng.random() < 0.3,
            max_restarts=rng.choice((0, 1, -1)),
            max_task_retries=rng.choice((0, 2)),
            get_if_exists=rng.random() < 0.7,
        )
        if spec.name:
            self.named.add(spec.id)
        else:
            self.refs[spec.id] = "actor"
            self.actors[spec.id] = spec
        self.outbox.append(ActorSubmitted(spec, b"blob"))

    def call(self) -> None:
        if self.actors:
            actor = self.rng.choice(list(self.actors))
            self.submit(
                function=b"", actor=actor, method="m", shape=(), profile=Profile(), retries=0, timeout=0.0
            )

    def kill(self) -> None:
        if self.actors and self.rng.random() < 0.2:
            self.outbox.append(KillActor(self.rng.choice(list(self.actors))))

    def take(self, message: Any) -> None:
        if isinstance(message, AnswerActor):
            if message.error is None and message.actor not in self.refs and message.asked in self.named:
                self.refs[message.actor] = "actor"
                self.actors[message.actor] = ActorSpec(message.actor, b"class", b"", "", "Class")
        elif isinstance(message, DeliverItems):
            ((item, _),) = message.items
            if message.task in self.refs:
                self.items.setdefault(message.task, []).append(item)
                assert message.position == len(self.items[message.task]) - 1
                self.refs[item] = "item"
            else:
                self.outbox.append(RefsReleased((item,)))
        elif message.id in self.wanted:
            outcome = message.outcome
            if isinstance(outcome, Stored) and message.id not in self.files.get(outcome.host, ()):
                self.outbox.append(FetchFailed(message.id, outcome.host, "no such file"))
                return
            self.wanted.discard(message.id)
            self.known[message.id] = outcome

    # --- the end --------------------------------------------------------------------------------------

    def settle(self, limit: int = 200_000) -> None:
        """Let everything go on, without new work or faults, until nothing is under way."""
        for _ in range(limit):
            if not self.progress():
                return
        raise AssertionError("the pool never comes to rest")

    def drain(self) -> None:
        """Want everything, get it, release it, and see that nothing is left."""
        self.faults = False
        # What was lost with all hosts that had one comes back.
        self.add_host()
        self.add_host()
        self.settle()
        # Actors first: they may hold, for good, what a task waits for.
        for object_id, kind in tuple(self.refs.items()):
            if kind == "actor":
                self.outbox.append(KillActor(object_id))
        for named in tuple(self.state._tables.actor_names.values()):
            self.outbox.append(KillActor(named))
        self.settle()
        for object_id, kind in tuple(self.refs.items()):
            if kind != "actor" and object_id not in self.wanted and object_id not in self.known:
                self.want_one(object_id)
        self.settle()
        assert not self.wanted, f"never delivered: {self.wanted}"
        for object_id in tuple(self.refs):
            self.release_one(object_id)
        self.settle()
        stats = self.state.stats()
        assert stats.objects == 0, f"objects are left: {list(self.state._tables.objects)}"
        left = set().union(*self.files.values()) - self.untold
        assert not left, f"files are left: {left}"
        assert all(host.free == host.offered for host in stats.hosts.values()), stats.hosts
