"""The callable entrypoint runs nothing that it can't vouch for."""

import hashlib
import pickle
import sys
import types
from pathlib import Path

import pytest

from fray.runtime.entrypoint import PayloadError, load_callable, main

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def store(directory: Path, payload: bytes, *, parts: int = 1) -> str:
    size = -(-len(payload) // parts)
    for index in range(parts):
        (directory / f"payload-{index:03}").write_bytes(payload[index * size : (index + 1) * size])
    return hashlib.sha256(payload).hexdigest()


@pytest.mark.parametrize("parts", [1, 3])
def test_runs_the_callable_put_together_from_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: int
) -> None:
    digest = store(tmp_path, pickle.dumps(print_greeting), parts=parts)
    assert main([str(tmp_path), "--sha256", digest, "--python", HERE]) == 0
    assert capsys.readouterr().out == "hello\n"


def print_greeting() -> None:
    print("hello")


def test_a_changed_payload_is_never_unpickled(tmp_path: Path) -> None:
    store(tmp_path, b"cos\nsystem\n(S'exit 9'\ntR.")
    with pytest.raises(PayloadError, match="digest"):
        load_callable(tmp_path, sha256="0" * 64, python=HERE)


def test_another_python_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match=r"pickled by Python 3\.99.*this image has") as caught:
        load_callable(tmp_path / "missing", sha256="0" * 64, python="3.99")
    assert "Python 3.99" in caught.value.next_step


def test_an_empty_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match="holds no payload"):
        load_callable(tmp_path, sha256="0" * 64, python=HERE)


def test_a_missing_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("absent_module")
    exec("def run(): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "absent_module", module)
    module.run.__module__ = "absent_module"
    digest = store(tmp_path, pickle.dumps(module.run))
    monkeypatch.delitem(sys.modules, "absent_module")
    with pytest.raises(PayloadError, match="'absent_module'"):
        load_callable(tmp_path, sha256=digest, python=HERE)


def test_what_is_no_callable_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = store(tmp_path, pickle.dumps(42))
    assert main([str(tmp_path), "--sha256", digest, "--python", HERE]) == 2
    assert "is a int, not a callable" in capsys.readouterr().err


def test_the_callables_own_exception_passes_through(tmp_path: Path) -> None:
    digest = store(tmp_path, pickle.dumps(fail))
    with pytest.raises(ZeroDivisionError):
        main([str(tmp_path), "--sha256", digest, "--python", HERE])


def fail() -> None:
    raise ZeroDivisionError
