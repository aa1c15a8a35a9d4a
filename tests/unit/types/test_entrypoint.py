"""Entrypoints: flat and nested spellings are views of one, and nothing is split or lost."""

from __future__ import annotations

import pickle

import pytest

from fray.types import BinaryEntrypoint, CallableEntrypoint, Entrypoint


def main(steps: int = 1, *, fast: bool = False) -> int:
    return steps + fast


@pytest.mark.parametrize(
    "entrypoint",
    [
        Entrypoint.from_callable(main, kwargs={"steps": 3}),
        Entrypoint(callable=main, function_args={"steps": 3}),
        Entrypoint(callable_entrypoint=CallableEntrypoint(main, kwargs={"steps": 3})),
        Entrypoint(CallableEntrypoint(main, (), {"steps": 3})),
    ],
)
def test_every_spelling_of_a_callable(entrypoint: Entrypoint) -> None:
    assert entrypoint == Entrypoint.from_callable(main, [], {"steps": 3})
    assert entrypoint.callable is main
    assert entrypoint.function_args == {"steps": 3}
    assert entrypoint.args == ()
    assert entrypoint.binary is entrypoint.binary_entrypoint is None
    assert pickle.loads(pickle.dumps(entrypoint)) == entrypoint


@pytest.mark.parametrize(
    "entrypoint",
    [
        Entrypoint.from_command(["train", "--fast", ""]),
        Entrypoint.from_binary("train", ["--fast", ""]),
        Entrypoint(binary="train", args=["--fast", ""]),
        Entrypoint(binary_entrypoint=BinaryEntrypoint("train", ("--fast", ""))),
    ],
)
def test_every_spelling_of_a_program(entrypoint: Entrypoint) -> None:
    assert entrypoint.binary_entrypoint == BinaryEntrypoint("train", ["--fast", ""])
    assert (entrypoint.binary, entrypoint.args) == ("train", ("--fast", ""))
    assert entrypoint.binary_entrypoint.argv == ("train", "--fast", "")
    assert entrypoint.callable is entrypoint.function_args is None
    assert repr(entrypoint) == "Entrypoint.from_command(['train', '--fast', ''])"


def test_a_module() -> None:
    entrypoint = Entrypoint.from_module("json.tool", ["--compact"])
    assert entrypoint == Entrypoint.from_command(["python3", "-m", "json.tool", "--compact"])


def test_arguments_of_a_callable_are_not_shown() -> None:
    entrypoint = Entrypoint.from_callable(main, args=["s3cret"], kwargs={"fast": "s3cret"})
    assert repr(entrypoint) == "Entrypoint.from_callable(main)"
    assert entrypoint.args == ("s3cret",)


def test_what_was_given_is_copied() -> None:
    arguments, names = ["a"], {"fast": True}
    program = Entrypoint.from_binary("train", arguments)
    function = Entrypoint.from_callable(main, arguments, names)
    arguments.append("b")
    names.clear()
    assert program.args == function.args == ("a",)
    assert function.function_args == {"fast": True}
