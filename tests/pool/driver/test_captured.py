"""What functions have captured lives no longer than they are used, and is never a stranger's."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fray.job import JobContext, TaskOptions, get_default_job_ctx
from tests.behaviour.gates import Gate
from tests.pool.chaos.inspection import pool_of, settles

MakePool = Callable[[int], JobContext]
MIB = 1024**2


def reading(ref: Any) -> Callable[[], int]:
    def read() -> int:
        return len(get_default_job_ctx().get(ref))

    return read


def reading_of_itself(ref: Any) -> Callable[[], int]:
    def read() -> int:
        return len(get_default_job_ctx().get(read.ref))  # type: ignore[attr-defined]

    read.ref = ref  # type: ignore[attr-defined]
    return read


def read_once(ctx: JobContext, make: Callable[[Any], Callable[[], int]]) -> int:
    size: int = ctx.get(ctx.run(make(ctx.put(bytes(MIB)))))
    return size


@pytest.mark.parametrize("make", [reading, reading_of_itself])
def test_references_in_a_closure_go_with_the_function(
    make_pool: MakePool, make: Callable[[Any], Callable[[], int]]
) -> None:
    ctx = make_pool(1)
    assert [read_once(ctx, make) for _ in range(5)] == [MIB] * 5
    gc.collect()
    assert settles(lambda: pool_of(ctx).objects._store.usage().memory == 0)
    read = reading(ctx.put(bytes(MIB)))
    assert [ctx.get(ctx.run(read)) for _ in range(3)] == [MIB] * 3


class Keeper:
    def keep(self, refs: list[Any], gate: Gate) -> None:
        self.refs = refs
        threading.Thread(target=self.drop, args=(gate,)).start()

    def drop(self, gate: Gate) -> None:
        gate.pass_through()
        self.refs = []


def test_a_reference_that_a_thread_of_an_actor_drops_goes_without_a_further_call(
    make_pool: MakePool, gate: Gate
) -> None:
    ctx = make_pool(1)
    keeper = ctx.create_actor(Keeper)
    ctx.get(keeper.keep([ctx.put(bytes(MIB))], gate))
    gate.open()
    assert settles(lambda: pool_of(ctx).objects._store.usage().memory == 0)


def test_timers_go_with_their_tasks(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    refs = [ctx.run(int, options=TaskOptions(timeout=3600.0)) for _ in range(50)]
    assert ctx.get(refs) == [0] * 50
    assert not pool_of(ctx)._head._dispatcher._timers


SCRIPT = """
class Shape:
    def area(self):
        return 1
class Box(Shape):
    made = 0
    def area(self):
        return 2
def look():
    Box.made += 1
    Box.of_worker = getattr(Box, "of_worker", 0) + 1
    return Box().area(), Box.of_worker
def look_again():
    return Box.made
"""


def test_what_is_deleted_from_a_class_is_deleted_in_workers(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    look, box = script["look"], script["Box"]
    assert ctx.get(ctx.run(look)) == (2, 1)
    area = box.area
    del box.area
    assert ctx.get(ctx.run(look)) == (1, 2)  # what the worker's own code has set stays
    box.area = area
    assert ctx.get(ctx.run(look)) == (2, 3)
    assert isinstance(ctx.get(ctx.run(box)), box)  # the worker deletes nothing here
    assert box().area() == 2


def test_a_class_that_is_again_what_it_was_is_so_in_workers(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    box = script["Box"]
    for made in (1, 2, 1, 1, 2):
        box.made = made
        # Another function each time, and the same one.
        assert (
            ctx.get([ctx.run(eval("lambda: Box.made", script)), ctx.run(script["look_again"])]) == [made] * 2
        )


def test_functions_that_share_a_class_find_it_as_it_is_when_they_are_called(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    box, other = script["Box"], eval("lambda: Box.made", script)
    for made, looks in ((1, (script["look_again"],)), (2, (other,)), (1, (script["look_again"], other))):
        box.made = made
        assert ctx.get([ctx.run(look) for look in looks]) == [made] * len(looks)
    box.made = [1]
    for change in (box.made.clear, lambda: box.made.append(1), box.made.clear):
        assert ctx.get(ctx.run(script["look_again"])) == box.made
        change()


def test_an_older_instance_takes_nothing_back_from_its_class(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    box = script["Box"]
    older, of_worker = ctx.put(box()), ctx.run(box)
    assert ctx.get(ctx.run(script["look_again"])) == 0
    box.made = 1
    assert ctx.get(ctx.run(script["look_again"])) == 1
    assert ctx.get(ctx.run(eval("lambda _: Box.made", script), older)) == 1  # it has come to the worker
    assert ctx.get(ctx.run(script["look_again"])) == 1
    assert [type(each) for each in ctx.get([older, of_worker])] == [box] * 2
    assert box.made == 1
    # A worker's own change is its own.
    assert ctx.get(ctx.run(script["look"])) == (2, 1)
    assert type(ctx.get(ctx.run(box))) is box
    assert (box.made, hasattr(box, "of_worker")) == (1, False)


REGISTRY = """
import dataclasses
class Base:
    registry = []
    ops = {"same": lambda value: value}
    def __init_subclass__(cls):
        Base.registry.append(cls)
class Kind(Base):
    made = 0
    def __init__(self):
        Kind.made += 1
@dataclasses.dataclass(slots=True)
class Point:
    x: int
def move(point):
    return Point(point.x + 1)
def make():
    return Kind()
def count():
    return len(Base.registry), Kind.made
"""


def test_a_class_is_made_once_in_each_process(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(REGISTRY, script)
    for _ in range(5):
        assert type(ctx.get(ctx.run(script["make"]))) is script["Kind"]
    assert script["count"]() == (1, 0)
    # What can't be compared by a plain pickle is as it was, and so is what the worker has counted.
    assert ctx.get(ctx.run(script["count"])) == (1, 5)


def test_instances_with_slots_come_back(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(REGISTRY, script)
    moved = ctx.get(ctx.run(script["move"], script["Point"](1)))
    assert moved == script["Point"](2)
    assert not hasattr(moved, "__dict__")


def test_what_a_worker_makes_of_a_class_reaches_no_other_process(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(REGISTRY, script)
    made = [ctx.run(script["make"]) for _ in range(4)]
    script["Kind"].rate = 1
    read = eval("lambda *_: Kind.rate", script)
    assert ctx.get([ctx.run(read) for _ in range(4)]) == [1] * 4
    script["Kind"].rate = 2
    refs = [ctx.run(read), *(ctx.run(read, each) for each in made), *(ctx.run(read) for _ in range(4))]
    assert ctx.get(refs) == [2] * 9


def test_a_reference_that_gave_way_to_none_is_freed_once_the_function_runs(
    make_pool: MakePool,
) -> None:
    ctx = make_pool(1)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec("table = None\ndef read():\n    return table is None", script)
    script["table"] = ctx.put(bytes(MIB))
    assert ctx.get(ctx.run(script["read"])) is False
    script["table"] = None
    assert ctx.get(ctx.run(script["read"])) is True
    assert settles(lambda: pool_of(ctx).objects._store.usage().memory == 0)
