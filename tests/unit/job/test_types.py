"""What a type checker says of a user's program: contexts keep the types of functions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from collections.abc import Iterator

from fray.job import ActorOptions, TaskOptions, create_job_ctx


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
reveal_type(ref)  # ObjectRef[float]
reveal_type(ctx.get(ref))  # float
reveal_type(ctx.get([ref, ref], timeout=1))  # list[float]
reveal_type(ctx.get(ctx.put("text")))  # str
reveal_type(ctx.get(3))  # int
reveal_type(ctx.run(later, 1))  # ObjectRef[str]
items = ctx.run(count, 3)
reveal_type(items)  # GeneratorFuture[int]
reveal_type([ctx.get(item) for item in items])  # list[int]
reveal_type(ctx.get(items))  # list[int]
reveal_type(ctx.run(join, "a", "b", between="-"))  # ObjectRef[str]
text = ctx.put("a")
reveal_type(ctx.run(join, text, "b"))  # ObjectRef[str]
reveal_type(ctx.run(join, "a", text))  # ObjectRef[str]
reveal_type(ctx.run(join, left=text, right=text))  # ObjectRef[str]
reveal_type(ctx.run(double, 1, options=TaskOptions(retries=0)))  # ObjectRef[float]
reveal_type(ctx.run(double, 1, name="it"))  # ObjectRef[float]
reveal_type(list(ctx.map(double, [1, 2])))  # list[float]
reveal_type(ctx.wait([ref, ref]))  # tuple[list[ObjectRef[float]], list[ObjectRef[float]]]
actor = ctx.create_actor(Counter, 1)
reveal_type(actor)  # ActorHandle[Counter]
reveal_type(actor.add(2))  # ObjectRef[Any]

ctx.run(double, "no", 3)  # error
ctx.run(double, "no")  # error
ctx.run(join, "a", "b", beside="-")  # error
ctx.map(double, ["no"])  # error
"""


def test_contexts_keep_the_types_of_functions(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--config-file=", "--cache-dir"]
    ran = subprocess.run(
        [*command, str(tmp_path / "cache"), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    wanted = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    said: dict[int, str] = {}
    for number, kind, text in re.findall(r"program\.py:(\d+): (\w+): (.*)", ran.stdout):
        revealed = re.fullmatch(r'Revealed type is "(.*)"', text)
        if revealed:
            said[int(number)] = re.sub(r"\b(?:[a-z_]+\.)+", "", revealed[1])
        elif kind == "error":
            said[int(number)] = "error"
    assert said == wanted, ran.stdout
