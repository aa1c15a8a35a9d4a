"""Words behind a function become its arguments, by its annotations."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, Union

import pytest

from fray.cli.app import app
from fray.cli.function_arguments import asks_for_help, describe_function, parse_arguments
from fray.errors import InvalidRequestError

if TYPE_CHECKING:
    from elsewhere import Unknown

Rate = NewType("Rate", float)


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = 2


def train(
    data: Path,
    steps: int = 10,
    *,
    lr: float = 1e-3,
    resume: bool = False,
    mode: Mode = Mode.FAST,
    dtype: Literal["bf16", "f32", 8] = "bf16",
    layers: list[int] = [],  # noqa: B006
    seed: int | None = None,
    name: Optional[str] = None,  # noqa: UP045
    either: Union[int, float, str] = 0,  # noqa: UP007
    rate: Annotated[Rate, "a fraction"] = Rate(0.5),
    shape: tuple[int, ...] = (),
    untyped=2,
    guessed=(1.5,),
    text=None,
    odd: dict[str, int] | None = None,
    unknown: Unknown = None,
) -> None:
    """Train a model.

    On data.
    """


def call(function: Callable[..., Any], *words: str) -> dict[str, Any]:
    arguments = parse_arguments(function, words, target="job:fn")
    return inspect.signature(function).bind(*arguments.args, **arguments.kwargs).arguments


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["d"], {}),
        (["--data", "d"], {}),
        (["--", "d"], {}),
        (["d", "20"], {"steps": 20}),
        (["d", "-1"], {"steps": -1}),
        (["d", "--steps=3"], {"steps": 3}),
        (["--lr", "3e-4", "d"], {"lr": 3e-4}),
        (["d", "--lr", "-1"], {"lr": -1.0}),
        (["--resume", "d"], {"resume": True}),
        (["--no-resume", "d"], {"resume": False}),
        (["--resume", "false", "d"], {"resume": False}),
        (["--resume=yes", "d"], {"resume": True}),
        (["d", "--mode", "SLOW"], {"mode": Mode.SLOW}),
        (["d", "--mode", "fast"], {"mode": Mode.FAST}),
        (["d", "--mode", "2"], {"mode": Mode.SLOW}),
        (["d", "--dtype", "f32"], {"dtype": "f32"}),
        (["d", "--dtype", "8"], {"dtype": 8}),
        (["d", "--layers", "8", "--layers=4"], {"layers": [8, 4]}),
        (["d", "--shape", "8", "--shape=4"], {"shape": (8, 4)}),
        (["d", "--seed", "5"], {"seed": 5}),
        (["d", "--seed", "none"], {"seed": None}),
        (["d", "--name", "x=y"], {"name": "x=y"}),
        (["d", "--either", "1"], {"either": 1}),
        (["d", "--either", "1.5"], {"either": 1.5}),
        (["d", "--either", "x"], {"either": "x"}),
        (["d", "--rate", "0.25"], {"rate": 0.25}),
        (["d", "--untyped", "3"], {"untyped": 3}),
        (["d", "--guessed", "3"], {"guessed": (3.0,)}),
        (["d", "--text", "3"], {"text": "3"}),
    ],
    ids=str,
)
def test_each_word_has_the_type_of_its_parameter(words: list[str], expected: dict[str, Any]) -> None:
    found = call(train, *words)
    assert found == {"data": Path("d"), **expected}
    assert [type(value) for value in found.values()] == [
        type(value) for value in ({"data": Path("d"), **expected}).values()
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "^job:fn: needs DATA"),
        (["d", "1", "2"], "^job:fn: takes no further argument '2'"),
        (["d", "--lr", "fast"], "^--lr: is 'fast', and takes FLOAT"),
        (["d", "x"], "^STEPS: is 'x', and takes INT"),
        (["d", "--lrr", "1"], "^--lrr: is no parameter of job:fn; --lr is near"),
        (["d", "-x"], "^-x: is no parameter"),
        (["d", "--lr"], "^--lr: needs a value"),
        (["d", "--lr", "--resume"], "^--lr: needs a value"),
        (["d", "--lr", "1", "--lr", "2"], "^--lr: is given 2 times"),
        (["d", "--mode", "medium"], r"^--mode: is 'medium', and takes FAST\|SLOW"),
        (["d", "--dtype", "f16"], r"takes bf16\|f32\|8"),
        (["d", "--resume=maybe"], r"takes true\|false"),
        (["d", "--no-resume=true"], "takes no value"),
        (["d", "--no-lr"], "^--no-lr: is no parameter"),
        (["d", "--unknown", "1"], "^--unknown: is of type Unknown, and no text"),
    ],
    ids=str,
)
def test_what_a_function_does_not_take_is_refused_with_its_usage(words: list[str], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        call(train, *words)
    assert caught.value.next_step.startswith("Usage: fray run job:fn DATA [--steps INT] [--lr FLOAT]")


def takes_places(first: int, /, files: list[Path], *, size: str = "s") -> None: ...
def takes_many(first: str, *numbers: int, **options: float) -> None: ...
def takes_words(*words: str) -> None: ...
def takes_none() -> None: ...
def takes_two(first, second) -> None: ...


@functools.wraps(takes_places)
def decorated(*args: Any, **kwargs: Any) -> None: ...


@functools.wraps(takes_places)
def gives_more(size: str = "s") -> None: ...


class Run:
    def __init__(self, size: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words", "args", "kwargs"),
    [
        (takes_places, ["1", "a", "b"], (1, [Path("a"), Path("b")]), {}),
        (decorated, ["1", "a", "--size", "m"], (1, [Path("a")]), {"size": "m"}),
        (gives_more, ["--size", "m"], ("m",), {}),
        (takes_many, ["a", "1", "2", "--lr=3"], ("a", 1, 2), {"lr": 3.0}),
        (takes_words, ["--lr", "3", "--", "--help"], ("--lr", "3", "--", "--help"), {}),
        (takes_two, ["1", "--second", "2"], ("1", "2"), {}),
        (Run, ["3"], (3,), {}),
        (functools.partial(takes_two, 1), ["2"], ("2",), {}),
        (max, ["b", "a"], ("b", "a"), {}),
        (takes_none, [], (), {}),
    ],
)
def test_all_kinds_of_functions(
    function: Callable[..., Any], words: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    found = parse_arguments(function, words, target="job:fn")
    assert (found.args, found.kwargs) == (args, kwargs)


def test_help_shows_usage_docstring_types_and_defaults() -> None:
    assert asks_for_help(train, ["d", "--help"])
    assert asks_for_help(train, ["--", "--help"])
    assert not asks_for_help(train, ["d", "--", "--help"])
    assert not asks_for_help(takes_words, ["--help"])
    told = describe_function(train, target="job:fn")
    assert told.startswith("Usage: fray run job:fn DATA [--steps INT]")
    assert "\n\nTrain a model.\n\nOn data.\n\n" in told
    rows = [" ".join(line.split()) for line in told.splitlines()]
    assert "DATA PATH, also --data" in rows
    assert "--lr FLOAT default 0.001" in rows
    assert "--[no-]resume default False" in rows
    assert "--layers INT may be repeated, default []" in rows
    assert "--unknown VALUE no text can be read as it, default None" in rows


@pytest.mark.parametrize("command", ["run", "explain"])
def test_help_behind_a_function_runs_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "helped.py").write_text("def main(lr: float):\n    raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("FRAY_CLUSTER_SPEC", raising=False)
    assert app([command, "helped:main", "--help"], standalone_mode=False) in (None, 0)
    assert capfd.readouterr().out == "Usage: fray run helped:main LR\n\n  LR  FLOAT, also --lr\n"
    with pytest.raises(InvalidRequestError, match=r"^--lr: is 'x', and takes FLOAT"):
        app([command, "helped:main", "--lr", "x"], standalone_mode=False)
