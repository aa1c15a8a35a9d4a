"""What a type checker says of a user's program: contexts keep the types of functions. It is never run.

`make types` reads it. A line whose error is ignored must have one.
"""
# mypy: disable-error-code="unused-awaitable"

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, assert_type

from fray.job import (
    ActorHandle,
    ActorOptions,
    GeneratorFuture,
    Lifetime,
    ObjectRef,
    TaskOptions,
    create_job_ctx,
)


def double(x: int) -> float:
    return x * 2.0


def join(left: str, right: str, *, between: str = "") -> str:
    return left + between + right


def count(until: int) -> Iterator[int]:
    yield from range(until)


async def later(x: int) -> str:
    return str(x)


def nothing() -> None: ...


class Counter:
    def __init__(self, start: int, step: int = 1) -> None:
        self.value = start
        self.step = step

    def add(self, more: int) -> int:
        self.value += more * self.step
        return self.value


class Plain: ...


ctx = create_job_ctx("sync")

ref = ctx.run(double, 1)
assert_type(ref, ObjectRef[float])
assert_type(ctx.get(ref), float)
assert_type(ctx.get([ref, ref], timeout=1), list[float])
assert_type(ctx.get(ctx.put("text")), str)
assert_type(ctx.get(3), int)
assert_type(ctx.run(later, 1), ObjectRef[str])
items = ctx.run(count, 3)
assert_type(items, GeneratorFuture[int])
assert_type([ctx.get(item) for item in items], list[int])
assert_type(ctx.get(items), list[int])
assert_type(ctx.run(join, "a", "b", between="-"), ObjectRef[str])
text = ctx.put("a")
assert_type(ctx.run(join, text, "b"), ObjectRef[str])
assert_type(ctx.run(join, "a", text), ObjectRef[str])
assert_type(ctx.run(join, left=text, right=text), ObjectRef[str])
assert_type(ctx.run(join, "a", right=text), ObjectRef[str])
assert_type(ctx.run(join, left=text, right=ctx.run(join, "a", "b")), ObjectRef[str])
assert_type(ctx.run(double, x=ref), ObjectRef[float])
assert_type(ctx.run(Counter, start=ref), ObjectRef[Counter])
assert_type(ctx.run(nothing), ObjectRef[None])
assert_type(ctx.run(double, 1, options=TaskOptions(retries=0)), ObjectRef[float])
assert_type(ctx.run(double, 1, name="it"), ObjectRef[float])
assert_type(list(ctx.map(double, [1, 2])), list[float])
assert_type(ctx.wait([ref, ref]), tuple[list[ObjectRef[float]], list[ObjectRef[float]]])
actor = ctx.create_actor(Counter, 1)
assert_type(actor, ActorHandle[Counter])
assert_type(actor.add(2), ObjectRef[Any])
assert_type(ctx.create_actor(Counter, 1, step=2), ActorHandle[Counter])
assert_type(ctx.create_actor(Plain), ActorHandle[Plain])
assert_type(ctx.create_actor(partial(Counter, 1)), ActorHandle[Counter])
start = ctx.put(1)
assert_type(ctx.create_actor(Counter, start), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, 1, start), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, 1, step=start), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, start=start, step=start), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, 1, name="c", get_if_exists=True, num_cpus=0), ActorHandle[Counter])
assert_type(ctx.create_actor(Plain, options=ActorOptions(max_restarts=1)), ActorHandle[Plain])
assert_type(ctx.create_actor(Plain, lifetime="detached", name="p"), ActorHandle[Plain])
assert_type(ctx.create_actor(Plain, lifetime=Lifetime.EPHEMERAL), ActorHandle[Plain])
assert_type(ctx.create_actor(Counter, 1, preemptible=False), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, 1, step=2, num_cpus=0.5), ActorHandle[Counter])
assert_type(ctx.create_actor(Plain, max_task_retries=3), ActorHandle[Plain])
assert_type(ctx.create_actor(Plain, idle_timeout=60), ActorHandle[Plain])
assert_type(ctx.create_actor(Counter, args=(1,)), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, args=(1,), kwargs={"step": 2}), ActorHandle[Counter])
assert_type(ctx.create_actor(Counter, kwargs={"start": 1}), ActorHandle[Counter])

ctx.run(double)  # type: ignore[call-overload]
ctx.run(double, "no", 3)  # type: ignore[call-overload]
ctx.run(double, "no")  # type: ignore[call-overload]
ctx.run(join, "a", "b", beside="-")  # type: ignore[arg-type, call-arg]
ctx.map(double, ["no"])  # type: ignore[arg-type]
ctx.run(join, "a")  # type: ignore[call-overload]
ctx.run(join, "a", "b", "c")  # type: ignore[call-overload]
ctx.run(join, left=1, right="b")  # type: ignore[call-overload]
ctx.run(nothing, 1)  # type: ignore[call-overload]
ctx.run(later)  # type: ignore[call-overload]
ctx.run(count)  # type: ignore[call-overload]
ctx.run(Counter)  # type: ignore[call-overload]
wrong: str = ctx.get(ctx.run(double, 1))  # type: ignore[assignment]
wrong_too: list[str] = ctx.get([ref, ref])  # type: ignore[list-item]
ref.result().upper()  # type: ignore[attr-defined]
ctx.create_actor(Counter)  # type: ignore[call-overload]
ctx.create_actor(Counter, "no")  # type: ignore[call-overload]
ctx.create_actor(Counter, 1, 2, 3)  # type: ignore[call-overload]
ctx.create_actor(Counter, 1, stop=2)  # type: ignore[call-arg]
ctx.create_actor(Counter, 1, step="no")  # type: ignore[arg-type]
ctx.create_actor(Plain, 1)  # type: ignore[call-overload]
ctx.create_actor(Counter, 1, num_cpu=2)  # type: ignore[call-arg]
ctx.create_actor(Counter, 1, num_cpus="no")  # type: ignore[call-arg]
ctx.create_actor(Counter, 1, name=1)  # type: ignore[call-arg]
ctx.create_actor(Counter, 1, name="c", get_if_exists="no")  # type: ignore[call-arg]

# Wrong, and not found: Python can't say "this parameter, or a ref of its type" of all parameters of a
# function, nor "and options besides", nor which methods the handle of a class has.
ctx.run(double, ctx.put("no"))
ctx.run(join, left=text, rihgt=text)
ctx.create_actor(Counter, "no", name="c")
ctx.create_actor(Counter, ctx.put("no"))
actor.subtract("no")

# Right, and refused, for the same reason: give the ref by position, or `options=None` besides.
ctx.run(join, left="a", right=text)  # type: ignore[call-overload]
