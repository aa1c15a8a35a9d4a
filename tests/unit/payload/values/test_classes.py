"""Which process gives the states of a class their numbers, and who takes them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from fray.runtime.pool.objects.values import encode

SCRIPT = """
class Kind:
    rate = 1
"""
PROGRAM = """
import sys
from fray.payload.values.classes import define_here
from fray.runtime.pool.objects.values import decode
first, second, defines = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3] == "defines"
kind = type(decode(first))
if defines:
    define_here()
kind.rate = 7
kind.own = 8
decode(first)
seen = [kind.rate]
assert type(decode(second)) is kind
print(*seen, kind.rate, kind.own)
"""


def run(*arguments: str) -> str:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    return told.stdout.strip()


def test_who_runs_the_program_that_classes_came_with_defines_them_and_others_take_what_is_newer() -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, script)
    first = encode(script["Kind"]()).to_bytes().hex()
    assert encode(script["Kind"]()).to_bytes().hex() == first
    script["Kind"].rate = 2
    second = encode(script["Kind"]()).to_bytes().hex()
    # What is taken takes only what came earlier: what is set here stays.
    assert run(first, second, "takes") == "7 2 8"
    assert run(first, second, "defines") == "7 7 8"
