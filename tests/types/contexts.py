"""What a type checker says of a user's program: contexts keep the types of functions. It is never run.

`make types` reads it. A line whose error is ignored must have one.
"""
# mypy: disable-error-code="unused-awaitable"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

from fray.job import ActorHandle, GeneratorFuture, ObjectRef, TaskOptions, create_job_ctx


def double(x: int) -> float:
    return x * 2.0


def join(left: str, right: str, *, between: str = "") -> str:
    return left + between + right


def count(until: int) -> Iterator[int]:
    yield from range(until)


async def later(x: int) -> str:
    return str(x)


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, more: int) -> int:
        self.value += more
        return self.value


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
assert_type(ctx.run(double, 1, options=TaskOptions(retries=0)), ObjectRef[float])
assert_type(ctx.run(double, 1, name="it"), ObjectRef[float])
assert_type(list(ctx.map(double, [1, 2])), list[float])
assert_type(ctx.wait([ref, ref]), tuple[list[ObjectRef[float]], list[ObjectRef[float]]])
actor = ctx.create_actor(Counter, 1)
assert_type(actor, ActorHandle[Counter])
assert_type(actor.add(2), ObjectRef[Any])

ctx.run(double, "no", 3)  # type: ignore[call-overload]
ctx.run(double, "no")  # type: ignore[call-overload]
ctx.run(join, "a", "b", beside="-")  # type: ignore[arg-type, call-arg]
ctx.map(double, ["no"])  # type: ignore[arg-type]
ctx.run(join, "a")  # type: ignore[call-overload]
ctx.run(join, "a", "b", "c")  # type: ignore[call-overload]
ctx.run(join, left=1, right="b")  # type: ignore[call-overload]
wrong: str = ctx.get(ctx.run(double, 1))  # type: ignore[assignment]
wrong_too: list[str] = ctx.get([ref, ref])  # type: ignore[list-item]
ref.result().upper()  # type: ignore[attr-defined]

# Wrong, and not found: Python can't say "this parameter, or a ref of its type" of all parameters of a
# function, that there is at least one keyword, nor which methods the handle of a class has.
ctx.run(double)
ctx.run(double, ctx.put("no"))
ctx.run(join, left=text, rihgt=text)
ctx.create_actor(Counter, "no")
actor.subtract("no")
