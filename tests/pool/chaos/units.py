"""How each kind of unit is submitted, and what must come of it."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fray.errors import ActorDiedError, TaskCancelledError, TaskTimeoutError, WorkerDiedError
from fray.job import ActorOptions, JobContext, ObjectRef, TaskOptions
from fray.job.actors import ActorHandle
from tests.pool.chaos import load
from tests.pool.chaos.plan import Unit

__all__ = ["PATIENCE", "RETRIES", "Load", "Started"]

RETRIES = 12
"""Enough that a task meets so many random kills in no run that anybody will live to see."""
POISON_RETRIES = 2
PATIENCE = 120.0
"""Seconds after which a value that hasn't come never will."""
CALLS_OF_AN_ACTOR = 400
_ACTORS = 6
_TALLIES = 4
_TOO_LONG = 0.05
_SURE = TaskOptions(retries=RETRIES)


@dataclass(frozen=True)
class Started:
    """A unit under way. `verify` gets what came of it, and raises AssertionError unless that is right."""

    unit: Unit
    ref: ObjectRef
    verify: Callable[[], None]
    kept: tuple[Any, ...] = ()
    """Refs that must live until then."""
    began: float = 0.0
    """When it was submitted, on the monotonic clock."""


@dataclass
class _Actor:
    number: int
    handle: ActorHandle
    sure: bool
    """Its calls are made again until they succeed."""
    calls: int = 0


@dataclass
class Load:
    """Submits units. `log` is the path of the run log."""

    context: JobContext
    log: str
    most_runs: dict[int, int] = field(default_factory=dict)
    """How often a task may run, where that isn't `RETRIES` + 1."""
    forced: set[int] = field(default_factory=set)
    """Tasks whose workers the pool itself may have killed: to others there, that is no fault of theirs."""
    deaths: int = 0
    """Workers that tasks have killed."""
    tallies: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What calls of actors with a state gave: which incarnation answered, and its tally."""
    _actors: list[_Actor] = field(default_factory=list)
    _tally_actors: list[ActorHandle] = field(default_factory=list)
    _number: int = 0

    def start(self, unit: Unit) -> Started:
        """Submit a unit."""
        starter: Callable[[Unit], Started] = getattr(self, f"_start_{unit.kind.value}")
        return starter(unit)

    def drop_actors(self) -> None:
        """Let go of all actors."""
        self._actors.clear()
        self._tally_actors.clear()

    def _expect(self, unit: Unit, ref: ObjectRef, expected: Any, *kept: Any) -> Started:
        def verify() -> None:
            got = self.context.get(ref, timeout=PATIENCE)
            assert got == expected, f"{unit} gave {got!r:.200}, not {expected!r:.200}"

        return Started(unit, ref, verify, kept)

    def _run(
        self, function: Callable[..., Any], unit: Unit, *args: Any, options: TaskOptions = _SURE
    ) -> ObjectRef:
        return self.context.run(function, self.log, unit.key, *args, options=options)

    # --- values --------------------------------------------------------------------------------------------

    def _start_no_op(self, unit: Unit) -> Started:
        return self._expect(unit, self._run(load.no_op, unit), unit.key)

    def _start_work(self, unit: Unit) -> Started:
        return self._expect(unit, self._run(load.work, unit), load.mixed(unit.key))

    def _start_large(self, unit: Unit) -> Started:
        ref = self._run(load.make_large, unit, unit.size)
        return self._expect(unit, ref, load.noise(unit.key, unit.size))

    def _start_passed_on(self, unit: Unit) -> Started:
        made = self.context.run(load.make_large, self.log, -unit.key & _MASK, unit.size, options=_SURE)
        expected = zlib.crc32(load.noise(-unit.key & _MASK, unit.size))
        return self._expect(unit, self._run(load.check, unit, made), expected)

    def _start_put(self, unit: Unit) -> Started:
        value = load.noise(unit.key, unit.size)
        ref = self._run(load.check_inside, unit, [self.context.put(value)])
        return self._expect(unit, ref, zlib.crc32(value))

    def _start_put_inside(self, unit: Unit) -> Started:
        ref = self._run(load.put_inside, unit, unit.size)

        def verify() -> None:
            (boxed,) = self.context.get(ref, timeout=PATIENCE)
            assert self.context.get(boxed, timeout=PATIENCE) == load.noise(unit.key, unit.size), unit

        return Started(unit, ref, verify)

    def _start_closure(self, unit: Unit) -> Started:
        value = load.noise(unit.key, unit.size)
        function = load.reading(self.context.put(value))
        return self._expect(unit, self._run(function, unit), zlib.crc32(value))

    def _start_holds_gil(self, unit: Unit) -> Started:
        return self._expect(unit, self._run(load.hold_the_gil, unit, unit.size * 20), unit.key)

    def _start_nested(self, unit: Unit) -> Started:
        ref = self._run(load.split, unit, unit.size, 2, RETRIES)
        return self._expect(unit, ref, load.split_sum(unit.size, 2))

    # --- generators ----------------------------------------------------------------------------------------

    def _items(self, unit: Unit) -> list[bytes]:
        return [load.noise(unit.key + i, size) for i, size in enumerate(load.sizes(unit.key, unit.size))]

    def _start_stream(self, unit: Unit) -> Started:
        stream: Any = self._run(load.generate, unit, unit.size)

        def verify() -> None:
            for index, expected in enumerate(self._items(unit)):
                assert self.context.wait([stream], timeout=PATIENCE)[0], f"{unit}: no item {index}"
                got = self.context.get(next(stream), timeout=PATIENCE)
                assert got == expected, f"{unit}: item {index} is {got!r:.200}"
            with pytest.raises(StopIteration):
                next(stream)

        return Started(unit, stream, verify)

    def _start_list_of_stream(self, unit: Unit) -> Started:
        return self._expect(unit, self._run(load.generate, unit, unit.size), self._items(unit))

    # --- actors --------------------------------------------------------------------------------------------

    def _start_call(self, unit: Unit) -> Started:
        actor = self._actor(unit.key % _ACTORS)
        actor.calls += 1
        argument: Any = self.context.put(load.noise(unit.key, 70_000)) if unit.size == 2 else unit.key
        value = zlib.crc32(load.noise(unit.key, 70_000)) if unit.size == 2 else unit.key
        if not actor.sure:
            self.most_runs[unit.key] = 1
        ref = actor.handle.add(unit.key, argument)

        def verify() -> None:
            try:
                assert self.context.get(ref, timeout=PATIENCE) == actor.number * 1000 + value, unit
            except ActorDiedError:
                assert not actor.sure, unit

        return Started(unit, ref, verify, (actor,))

    def _actor(self, place: int) -> _Actor:
        while len(self._actors) <= place:
            self._actors.append(self._create_actor(len(self._actors)))
        if self._actors[place].calls >= CALLS_OF_AN_ACTOR:
            self._actors[place] = self._create_actor(place)
        return self._actors[place]

    def _create_actor(self, place: int) -> _Actor:
        self._number += 1
        sure = place % 2 == 0
        options = ActorOptions(
            max_restarts=1_000_000,
            max_task_retries=RETRIES if sure else 0,
            resources={"CPU": 1} if place == 1 else None,
        )
        made = self.context.create_actor(
            load.Adder, self.log, self._number, self._number * 1000, options=options
        )
        return _Actor(self._number, made, sure)

    def _start_tally(self, unit: Unit) -> Started:
        self.most_runs[unit.key] = 1
        while len(self._tally_actors) < _TALLIES:
            self._number += 1
            options = ActorOptions(max_restarts=1_000_000)
            self._tally_actors.append(
                self.context.create_actor(load.Tally, self.log, self._number, options=options)
            )
        actor = self._tally_actors[unit.key % _TALLIES]
        ref = actor.add(unit.key)

        def verify() -> None:
            with contextlib.suppress(ActorDiedError):
                self.tallies[unit.key] = self.context.get(ref, timeout=PATIENCE)

        return Started(unit, ref, verify, (actor,))

    # --- what fails ----------------------------------------------------------------------------------------

    def _expect_error(
        self, unit: Unit, ref: ObjectRef, *kinds: type[BaseException], value: Any = None
    ) -> Started:
        def verify() -> None:
            try:
                got = self.context.get(ref, timeout=PATIENCE)
            except kinds:
                return
            assert value is not None, f"{unit} gave {got!r:.200}"
            assert got == value, f"{unit} gave {got!r:.200}"

        return Started(unit, ref, verify)

    def _start_failing(self, unit: Unit) -> Started:
        return self._expect_error(unit, self._run(load.fail, unit), LookupError)

    def _start_cancelled(self, unit: Unit) -> Started:
        ref = self._run(load.linger, unit, 1.0)
        self.context.cancel(ref)
        return self._expect_error(unit, ref, TaskCancelledError, value=unit.key)

    def _start_cancelled_by_force(self, unit: Unit) -> Started:
        self.forced.add(unit.key)
        # One half of them where only the end of the process helps.
        ref = self._run(load.sleep_in_c, unit, 1) if unit.size % 2 else self._run(load.linger, unit, 1.0)
        self.context.wait([ref], timeout=unit.size * 0.01)
        self.context.cancel(ref, force=True)
        return self._expect_error(unit, ref, TaskCancelledError, value=unit.key)

    def _start_too_long(self, unit: Unit) -> Started:
        options = TaskOptions(timeout=_TOO_LONG, retries=RETRIES)
        ref = self._run(load.linger, unit, PATIENCE, options=options)
        return self._expect_error(unit, ref, TaskTimeoutError)

    def _start_dies_once(self, unit: Unit) -> Started:
        self.deaths += 1
        return self._expect(unit, self._run(load.die, unit, 1), unit.key)

    def _start_poisoned(self, unit: Unit) -> Started:
        self.most_runs[unit.key] = POISON_RETRIES + 1
        self.deaths += POISON_RETRIES + 1
        ref = self._run(load.die, unit, RETRIES, options=TaskOptions(retries=POISON_RETRIES))

        def verify() -> None:
            with pytest.raises(WorkerDiedError) as caught:
                self.context.get(ref, timeout=PATIENCE)
            assert caught.value.attempts >= POISON_RETRIES + 1, caught.value
            assert len(caught.value.story) == caught.value.attempts, caught.value

        return Started(unit, ref, verify)

    def _start_frail(self, unit: Unit) -> Started:
        self.most_runs[unit.key] = 1
        options = TaskOptions(retries=0)
        return self._expect_error(
            unit, self._run(load.work, unit, options=options), WorkerDiedError, value=load.mixed(unit.key)
        )

    def _start_one_off(self, unit: Unit) -> Started:
        """Run in a process that ends after a few tasks."""
        options = TaskOptions(max_calls=3, env={"FRAY_CHAOS": "1"}, retries=RETRIES)
        return self._expect(unit, self._run(load.work, unit, options=options), load.mixed(unit.key))


_MASK = (1 << 59) - 1
