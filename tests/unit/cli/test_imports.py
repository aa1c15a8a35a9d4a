"""`import fray` and `fray --help` load next to nothing, and every public name is there."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pickle
import subprocess
import sys

import pytest

import fray
from fray import errors
from fray.offered_names import HOMES

WHOLE = ("fray.cluster.current", "fray.job", "fray.types")
HEAVY = ("pydantic", "pydantic_core", "rich", "yaml", "kubernetes", "typer", "asyncio", "jax")


def loaded_by(program: str) -> set[str]:
    """Return the top-level modules that a program loads."""
    report = "; import sys; sys.stderr.write('\\n'.join({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", program + report]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines())


def test_importing_fray_imports_nothing_heavy() -> None:
    assert not loaded_by("import fray") & set(HEAVY)


def test_help_imports_nothing_but_typer() -> None:
    program = (
        "import sys; sys.argv = ['fray', '--help']; from fray.cli.app import app; app(standalone_mode=False)"
    )
    assert loaded_by(program) & set(HEAVY) == {"typer"}


def test_every_public_name_can_be_imported() -> None:
    for name in fray.__all__:
        assert getattr(fray, name) is not None
    assert sorted(fray.__all__) == fray.__all__
    assert set(dir(fray)) == set(fray.__all__)
    assert fray.__version__ == importlib.metadata.version("fray")


def test_errors_and_older_names_can_be_imported_but_are_not_listed() -> None:
    for name in errors.__all__:
        assert getattr(fray, name) is getattr(errors, name)
    assert not set(errors.__all__) & set(fray.__all__)
    for name in ("ExecutionContext", "RuntimeEnv", "JobFailed", "fray_job_ctx"):
        assert getattr(fray, name) is not None
        assert name not in fray.__all__
    assert {"JobContext", "JobRequest", "current_cluster", "get_job_context"} <= set(fray.__all__)
    assert len(fray.__all__) < 60


@pytest.mark.parametrize("home", HOMES)
def test_each_home_has_the_names_that_are_told_of_it(home: str) -> None:
    known = importlib.import_module(home).__all__
    offered = HOMES[home]
    assert sorted(set(offered)) == list(offered)
    assert set(offered) <= set(known)
    if home in WHOLE:
        assert set(offered) == set(known), "type checkers are told all of them"


def test_a_name_that_is_not_there_imports_nothing() -> None:
    """The pickle module asks all others for the names of functions that don't tell theirs."""
    asked = "hasattr(fray, 'nonsense') or hasattr(fray.cluster, 'nonsense')"
    program = f"import sys, fray, fray.cluster; before = set(sys.modules); assert not ({asked})"
    check = "; assert set(sys.modules) == before, set(sys.modules) - before"
    subprocess.run([sys.executable, "-c", program + check], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = fray.nonsense


def is_error(name: str) -> bool:
    kind = getattr(errors, name)
    return isinstance(kind, type) and issubclass(kind, errors.FrayError)


GROUPS = {"FrayError", "RequestError", "SurroundingsError", "PayloadError", "TaskError", "TransportError"}
GROUPS |= {"WorkspaceError", "PackagesError"}
GROUPS |= {"FrameError", "RemoteTracebackError"}  # which stands behind another error, as its cause


@pytest.mark.parametrize("name", [name for name in errors.__all__ if is_error(name)])
def test_errors_survive_pickling_and_say_what_to_do(name: str) -> None:
    kind = getattr(errors, name)
    values = {"problems": (errors.FieldError("spec.a", "is wrong"),), "pid": 7, "exit_code": 3}
    values |= {"expected": 5, "found": 7}
    values |= {"failures": (("train", "rank 0 exited with code 1"),)}
    if name == "PayloadTooLargeError":
        values |= {"size": 9_000_000, "limit": 8_000_000, "parts": (("args[0]", 8_500_000),), "staged": False}
    if name == "WorkspaceTooLargeError":
        values |= {"size": 9_000_000, "limit": 8_000_000, "parts": (("data.bin", 8_500_000),)}
    tuples = ("nearest", "legal", "known")
    fields = [field.name for field in dataclasses.fields(kind)]
    error = kind(**{f: values.get(f, ("x",) if f in tuples else f"<{f}>") for f in fields})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert [getattr(again, f) for f in fields] == [getattr(error, f) for f in fields]
    if name not in GROUPS:
        assert error.message != name
        assert error.next_step.endswith((".", "?", ">"))
        assert str(error) == f"{error.message}\n{error.next_step}"
