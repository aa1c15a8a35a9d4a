"""A callable runs in an image that has Python and nothing of Fray, by what the init container has brought."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest

import fray
from fray.errors import PackageMissingError
from fray.payload.callables import encode_callable
from fray.payload.stamp import PYTHON
from fray.runtime import start
from fray.termination import Ending, TerminationMessage
from tests.unit.runtime.started import Pod

OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith(("FRAY_", "PYTHON"))}


@pytest.fixture
def injected(tmp_path: Path) -> Path:
    """The folder that the init container fills, behind a link as /var/run is in most images."""
    folder = tmp_path / "injected"
    (tmp_path / "run").mkdir()
    folder.symlink_to(tmp_path / "run")
    for package in (fray, cloudpickle):
        assert package.__file__ is not None
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / package.__name__, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def pod(tmp_path: Path, injected: Path) -> Pod:
    """A pod whose image has Python and nothing else."""
    script = injected / "fray" / "runtime" / "start.py"
    return Pod(tmp_path, flags=("-S",), runner=(str(script), "call"), environ=dict(OUTSIDE))


def test_an_image_without_fray_runs_a_callable(pod: Pod) -> None:
    def where() -> tuple[str, str, list[str]]:
        import fray.runtime.identity  # noqa: PLC0415

        return os.getcwd(), str(fray.runtime.identity.__file__), sys.path  # noqa: PTH109

    ended = pod.call(where)
    assert (ended.code, ended.err) == (0, "")
    directory, place, path = ended.outcome.result()
    assert directory == path[0] == str(pod.directory / "work")
    assert place == str(pod.directory / "injected" / "fray" / "runtime" / "identity.py")
    assert path[-1] == str(pod.directory / "injected")
    assert str(Path(place).parent) not in path


def test_its_pool_works_there_too(pod: Pod) -> None:
    def pooled() -> list[int]:
        from fray.job import create_job_ctx  # noqa: PLC0415

        with create_job_ctx("pool", max_workers=1) as ctx:
            found: list[int] = ctx.get([ctx.run(lambda number: number * 2, 21)])
            return found

    ended = pod.call(pooled)
    assert ended.code == 0, ended.err
    assert ended.outcome.result() == [42]


def test_what_needs_all_of_fray_says_so(pod: Pod) -> None:
    def launch() -> None:
        from fray.cluster import current_cluster  # noqa: PLC0415

        current_cluster()

    ended = pod.call(launch)
    assert ended.code == 1
    with pytest.raises(PackageMissingError, match="Install Fray itself") as raised:
        ended.outcome.result()
    assert isinstance(raised.value, ModuleNotFoundError)
    assert (raised.value.part, raised.value.name) == ("fray.cluster.current_cluster", "fray")


@pytest.mark.parametrize("name", ["FileQueue", "HttpQueue", "HttpQueueServer"])
def test_queues_that_need_more_packages_say_so(pod: Pod, name: str) -> None:
    def use() -> None:
        import fray.queue  # noqa: PLC0415

        getattr(fray.queue, name)

    ended = pod.call(use)
    with pytest.raises(PackageMissingError, match=f"fray.queue.{name} needs"):
        ended.outcome.result()


def test_a_queue_in_memory_needs_nothing_more(pod: Pod) -> None:
    def use() -> str:
        from fray.queue import MemoryQueue  # noqa: PLC0415

        return MemoryQueue.__name__

    assert pod.call(use).outcome.result() == "MemoryQueue"


def test_the_images_own_fray_is_used_where_it_has_one(pod: Pod, injected: Path, tmp_path: Path) -> None:
    own = tmp_path / "site"
    shutil.copytree(injected, own)
    pod.environ["PYTHONPATH"] = str(own)

    def where() -> str:
        import fray  # noqa: PLC0415

        return str(fray.__file__)

    ended = pod.call(where)
    assert ended.code == 0, ended.err
    assert ended.outcome.result() == str(own / "fray" / "__init__.py")


def test_another_package_of_its_name_is_in_nobodys_way(pod: Pod, tmp_path: Path) -> None:
    other = tmp_path / "site" / "fray"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('another one')")
    pod.environ["PYTHONPATH"] = str(other.parent)
    ended = pod.call(lambda: 5)
    assert ended.code == 0, ended.err
    assert ended.outcome.result() == 5


def test_an_older_python_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    assert start.main(["call", "place"], str(log)) == 116
    told = TerminationMessage.from_json(log.read_text())
    assert told is not None
    assert told.ending is Ending.NEVER_RAN
    assert "Python 3.9, and Fray needs 3.11" in told.message
    assert told.message in capsys.readouterr().err


def test_a_payload_of_another_python_is_refused_as_ever(pod: Pod) -> None:
    payload = encode_callable(print)
    pod.mount(payload)
    ended = pod.end(pod.start(payload.sha256, python="3.99"))
    assert ended.code == 116
    assert f"this image has Python {PYTHON}" in ended.err


def test_its_constants_are_those_of_the_vocabulary() -> None:
    from fray.vocabulary import EXIT_PAYLOAD_PYTHON, TERMINATION_LOG  # noqa: PLC0415

    assert (start.EXIT_PYTHON, start.LOG) == (EXIT_PAYLOAD_PYTHON, TERMINATION_LOG)


def test_it_runs_a_module_of_fray_with_its_arguments(injected: Path) -> None:
    module = injected / "fray" / "runtime" / "shown.py"
    module.write_text("import sys\nprint(__name__, *sys.argv[1:])\nsys.exit(89)\n")
    script = injected / "fray" / "runtime" / "start.py"
    command = [sys.executable, "-S", str(script), "run", "fray.runtime.shown", "--a", "b"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (89, "__main__ --a b\n"), ended.stderr
