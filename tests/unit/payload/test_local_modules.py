"""Which modules only this machine has, and that nothing is left of sending them."""

from __future__ import annotations

import collections.abc
import json
import os
import sys
import types
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest

import fray.errors
from fray.payload.local_modules import is_local, local_modules_by_value
from tests.unit.payload import samples


@pytest.mark.parametrize("module", [json, os, sys, collections.abc, pytest, cloudpickle, fray.errors])
def test_what_is_installed_goes_by_name(module: types.ModuleType) -> None:
    assert not is_local(module)


def test_what_is_not_installed_is_local(tmp_path: Path) -> None:
    assert is_local(samples)
    made = types.ModuleType("made")
    assert not is_local(made)
    made.__file__ = str(tmp_path / "made.py")
    assert is_local(made)
    made.__file__ = str(tmp_path / "made.so")
    assert not is_local(made)
    made.__file__ = str(tmp_path / "venv/lib/python3.11/site-packages/made.py")
    assert not is_local(made)


def test_the_registry_of_cloudpickle_is_as_before() -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    with local_modules_by_value():
        assert samples.__name__ in cloudpickle.list_registry_pickle_by_value()
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_a_module_that_somebody_else_registered_stays_registered() -> None:
    cloudpickle.register_pickle_by_value(samples)
    try:
        with local_modules_by_value():
            pass
        assert samples.__name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(samples)
