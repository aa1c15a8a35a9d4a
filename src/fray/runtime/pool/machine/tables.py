"""All that the state machine knows, in one place, and the commands that it is about to give.

The parts (objects, tasks, actors, scheduling, workers) are functions on these tables. What one part finds
for another to do is left in `woken`, `abandoned` and `unreferenced`, so that no part calls upwards and no
chain of consequences is deeper than one call.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any
from weakref import WeakValueDictionary

from fray.runtime.pool.machine.devices import UNITS
from fray.runtime.pool.machine.records import (
    ActorRecord,
    Demand,
    Doubt,
    Function,
    HostRecord,
    Needs,
    ObjectRecord,
    RunTotals,
    TaskFaults,
    TaskRecord,
    WorkerRecord,
)
from fray.runtime.pool.machine.transitions import (
    ACTOR_TRANSITIONS,
    TASK_TRANSITIONS,
    Cause,
    InvalidTransition,
)
from fray.runtime.pool.messages.commands import Command
from fray.runtime.pool.messages.specs import (
    DEFAULT_SHAPE,
    DRIVER,
    ActorId,
    ClientId,
    FunctionId,
    HostId,
    ObjectId,
    Profile,
    Shape,
    WorkerId,
)

__all__ = ["DEFAULT_NEEDS", "STORY_LINES", "Tables"]

DEFAULT_NEEDS: Needs = (("CPU", UNITS),)
STORY_LINES = 20
REMEMBERED_TRANSITIONS = 4_096
REMEMBERED_TASKS = 10_000
INLINE_BYTES = 1024**3


class Tables:
    """The state of one pool. No invariant is kept here: that is the parts' work."""

    __slots__ = (
        "abandoned",
        "active",
        "actor_names",
        "actor_queues",
        "actors",
        "allowed",
        "clients",
        "commands",
        "copies",
        "counters",
        "crowded",
        "demands",
        "dirty",
        "doubtful",
        "doubts",
        "ended",
        "finished",
        "freed",
        "functions",
        "homeless",
        "hosts",
        "ignored",
        "inline_bytes",
        "inline_limit",
        "keeping",
        "leaving",
        "lineage",
        "lineage_bytes",
        "moving",
        "needs",
        "next_worker",
        "now",
        "objects",
        "open_hosts",
        "plain",
        "recent",
        "reclaiming",
        "reserved",
        "search_due",
        "search_pause",
        "sent_ahead",
        "stale",
        "totals",
        "touched",
        "unreferenced",
        "unused_bytes",
        "unused_functions",
        "woken",
        "workers",
    )

    def __init__(self) -> None:  # noqa: PLR0915 - a line for each table
        self.now = 0.0
        self.allowed: tuple[Needs, ...] | None = ()
        """What hosts may have that aren't here; None: nobody knows."""
        self.commands: list[Command] = []
        self.objects: dict[ObjectId, ObjectRecord] = {}
        self.actors: dict[ActorId, ActorRecord] = {}
        self.actor_names: dict[str, ActorId] = {}
        self.actor_queues: dict[Needs, deque[ActorRecord]] = {}
        self.hosts: dict[HostId, HostRecord] = {}
        self.leaving: dict[HostId, HostRecord] = {}
        """Hosts that are to go."""
        self.moving: dict[ObjectId, HostId] = {}
        """Objects that are being copied elsewhere -> the host that leaves."""
        self.keeping: dict[ObjectId, HostId] = {}
        """Objects of which another host was asked to keep its copy, which may have gone -> likewise."""
        self.open_hosts: dict[HostId, HostRecord] = {}
        """Hosts with free CPUs."""
        self.workers: dict[WorkerId, WorkerRecord] = {}
        self.clients: dict[ClientId, set[ObjectId]] = {}
        """Who may hold references -> to what. The driver's aren't listed: it outlives the pool."""
        self.functions: dict[FunctionId, Function] = {}
        self.unused_functions: OrderedDict[FunctionId, None] = OrderedDict()
        self.unused_bytes = 0
        self.inline_bytes = 0
        """Of values that came in messages, and of the arguments of tasks that haven't ended."""
        self.inline_limit = INLINE_BYTES
        self.crowded = False
        """Clients were warned that these are too many bytes."""
        self.demands: WeakValueDictionary[tuple[Profile, Shape], Demand] = WeakValueDictionary()
        """Each for as long as a task has it: programs may make any number of profiles."""
        self.plain: Demand | None = None
        """That of the default profile and shape."""
        self.active: deque[Demand] = deque()
        """Demands with ready tasks, in turns."""
        self.needs: dict[Shape, Needs] = {DEFAULT_SHAPE: DEFAULT_NEEDS}
        self.lineage: OrderedDict[ObjectId, TaskRecord] = OrderedDict()
        self.lineage_bytes = 0
        self.stale: dict[ObjectId, set[HostId]] = {}
        """Hosts where a file of an object may lie that isn't its place: freed with it."""
        self.copies: dict[ObjectId, dict[HostId, int]] = {}
        """Hosts of readers with a copy of a stored object -> its size. It may have gone for lack of room."""
        self.doubts: dict[ObjectId, Doubt] = {}
        """Stored objects that readers couldn't read."""
        self.doubtful: dict[ActorId, ActorRecord] = {}
        """Actors that only actors and values may refer to: see `circles`, like the next two."""
        self.search_due = False
        self.search_pause = 0.0
        self.homeless: dict[Needs, float] = {}
        """What ready tasks or actors need that no host has any more -> since when."""
        self.reserved: tuple[Demand, HostRecord] | None = None
        self.reclaiming: WorkerRecord | None = None
        """The worker that was asked for tasks back and hasn't answered: one at a time."""
        self.freed = 0
        self.sent_ahead = 0
        self.next_worker = 1
        self.dirty = False
        self.ended: dict[ClientId, tuple[int, int]] = {DRIVER: (0, 0)}
        """Of clients that are no workers: tasks and calls that have ended, and the bytes of their arguments.
        One that is made again hasn't."""
        self.woken: deque[TaskRecord | ActorRecord] = deque()
        self.abandoned: list[TaskRecord] = []
        self.unreferenced: list[ActorRecord] = []
        self.touched: dict[WorkerId, WorkerRecord] = {}
        """Workers that might take more tasks ahead after this event."""
        self.ignored: dict[str, int] = {}
        self.counters: dict[str, int] = dict.fromkeys(
            ("submitted", "done", "failed", "cancelled", "retried", "rebuilt", "workers_lost", "items"), 0
        )
        self.counters["preempted"] = 0
        self.recent: deque[tuple[ObjectId, Cause]] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.finished: deque[tuple[Any, ...]] = deque(maxlen=REMEMBERED_TASKS)
        """The fields of a `Run` each, with times of the head's that are monotonic."""
        self.totals: dict[str, RunTotals] = {}
        """Of the runs that have ended, by the name of their function; so many names at most."""

    def ignore(self, what: str) -> None:
        """Count something that came too late, or from one who has no say in it."""
        self.ignored[what] = self.ignored.get(what, 0) + 1

    def count_ended(self, task: TaskRecord, number: int) -> None:
        """Count a task that has ended (1), or hasn't after all (-1), and its arguments.

        Its client may wait for it.
        """
        size = number * len(task.spec.args)
        self.inline_bytes -= size
        ended = self.ended.get(task.client)
        if ended is not None:
            self.ended[task.client] = (ended[0] + number, ended[1] + size)

    def move(self, task: TaskRecord, cause: Cause) -> None:
        """Take a task to its next state."""
        state = TASK_TRANSITIONS.get((task.state, cause))
        if state is None:
            story = task.faults.story if task.faults else []
            raise self._invalid(
                f"task {task.spec.id} ({task.spec.name})", task.spec.id, (task.state, cause), story
            )
        task.state = state
        self.recent.append((task.spec.id, cause))

    def move_actor(self, actor: ActorRecord, cause: Cause) -> None:
        """Take an actor to its next state."""
        state = ACTOR_TRANSITIONS.get((actor.state, cause))
        if state is None:
            what = f"actor {actor.spec.id} ({actor.spec.class_name})"
            raise self._invalid(what, actor.spec.id, (actor.state, cause), actor.story)
        actor.state = state
        self.recent.append((actor.spec.id, cause))

    def _invalid(
        self, what: str, key: ObjectId, step: tuple[str, Cause], story: list[str]
    ) -> InvalidTransition:
        steps = tuple(cause for other, cause in self.recent if other == key)
        return InvalidTransition(what, *step, (*story, *steps)[-STORY_LINES:])

    def tell(self, task: TaskRecord, line: str) -> TaskFaults:
        """Add a line to a task's story; the first and the last ones are kept."""
        faults = task.faults
        if faults is None:
            faults = task.faults = TaskFaults()
        if line:
            if len(faults.story) >= STORY_LINES:
                del faults.story[1]
            faults.story.append(line)
        return faults

    def needs_of(self, shape: Shape) -> Needs:
        """Return a shape in whole units."""
        needs = self.needs.get(shape)
        if needs is None:
            needs = tuple((name, round(amount * UNITS)) for name, amount in shape if amount > 0)
            self.needs[shape] = needs
        return needs
