"""Code goes by name where workers can import it, and by value where they can't."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import cloudpickle
import pytest

from fray.runtime.pool.objects.flat_format import HEADER, MAGIC
from fray.runtime.pool.objects.values import decode, encode
from tests.unit.pool.objects.samples import Point

IN_ANOTHER_PROCESS = """
import sys
from fray.runtime.pool.objects.values import decode
value = decode(sys.stdin.buffer.read())
print(value() if callable(value) else value)
"""


def shown_by_another_process(data: bytes) -> str:
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def load_from(path: Path, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(
        compile("class Box:\n    def __call__(self):\n        return 'boxed'\n", path, "exec"),
        module.__dict__,
    )
    return module


def test_code_of_the_main_script_goes_by_value() -> None:
    script = (
        "import sys\n"
        "from dataclasses import dataclass\n"
        "from fray.runtime.pool.objects.values import encode\n"
        "@dataclass\n"
        "class Local:\n"
        "    x: int\n"
        "sys.stdout.buffer.write(encode([{'deep': Local(7)}]).to_bytes())\n"
    )
    data = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60).stdout
    assert shown_by_another_process(data) == "[{'deep': Local(x=7)}]"


def test_code_of_a_module_that_workers_cannot_import_goes_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_from(tmp_path / "made.py", "made_at_run_time")
    monkeypatch.setitem(sys.modules, "made_at_run_time", module)
    value = module.Box()
    with pytest.raises(AssertionError, match="No module named 'made_at_run_time'"):
        shown_by_another_process(HEADER.pack(MAGIC, 0, 10**3) + pickle.dumps(value).ljust(10**3))
    try:
        assert shown_by_another_process(encode(value).to_bytes()) == "boxed"
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_code_of_a_file_that_another_one_hides_goes_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hidden_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    module = load_from(tmp_path / "elsewhere.py", "hidden_module")
    origin = str(tmp_path / "elsewhere.py")
    module.__spec__ = ModuleSpec("hidden_module", None, origin=origin)
    monkeypatch.setitem(sys.modules, "hidden_module", module)
    try:
        assert shown_by_another_process(encode(module.Box()).to_bytes()) == "boxed"
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_importable_code_goes_by_name() -> None:
    body = encode(Point(1)).body
    assert Point.__module__.encode() in body
    assert b"co_code" not in body
    assert len(body) < 200


def test_modules_that_the_user_sends_by_value_are_sent_so() -> None:
    here = sys.modules[Point.__module__]
    cloudpickle.register_pickle_by_value(here)
    try:
        assert len(encode(Point(1)).body) > 1000
    finally:
        cloudpickle.unregister_pickle_by_value(here)


def test_lambdas_and_closures_are_values_too() -> None:
    factor = 3
    back = decode(encode({"f": lambda x: x * factor}).to_bytes())
    assert back["f"](5) == 15
