"""Errors that stand beside the code which raises them are as good as those of `fray.errors`."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
import pkgutil

import pytest

import fray
from fray.errors import FrayError
from fray.plan.recorded import UnknownWordError

HOMES = ("fray.errors", "fray.kube")
"""Those of the first have tests of their own; those of the second are for code, not for people."""


def errors_elsewhere() -> list[type[FrayError]]:
    for found in pkgutil.walk_packages(fray.__path__, "fray."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    kinds, waiting = list[type[FrayError]](), [FrayError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("fray.") and not kind.__module__.startswith(HOMES):
            kinds.append(kind)
    return sorted(kinds, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", errors_elsewhere(), ids=lambda kind: kind.__name__)
def test_it_holds_data_survives_pickling_and_says_what_to_do(kind: type[FrayError]) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    assert names
    error = kind(*(("x",) if name == "story" else f"<{name}>" for name in names))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert [getattr(again, name) for name in names] == [getattr(error, name) for name in names]
    assert str(again) == str(error) == f"{error.message}\n{error.next_step}"
    assert error.next_step.endswith(".")


def test_there_are_some() -> None:
    assert UnknownWordError in errors_elsewhere()
