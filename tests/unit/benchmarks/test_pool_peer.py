"""The benchmark's peers: each runs in a process of its own, and one that fails says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pool.engines.base import Engine, Ref
from benchmarks.pool.engines.fray import FrayThreadsEngine
from benchmarks.pool.engines.processes import ProcessesEngine
from benchmarks.pool.figures import FIGURES
from benchmarks.pool.measurements import MEASUREMENTS, WrongResultError, count_all, measure_tasks
from benchmarks.pool.rounds import EARLIER, PeerFailedError, Run, plan_runs, run_peer
from benchmarks.pool.sizes import QUICK
from benchmarks.pool.workloads import split_evenly

TIMEOUT = 100.0


def test_fray_is_measured_through_its_public_api() -> None:
    measured = {*MEASUREMENTS} - {"queue", "work", "broadcast"}
    measurements = ("start", *(name for name in MEASUREMENTS if name in measured))
    records, versions = run_peer(Run("fray-threads", 2, measurements, quick=True), 0, TIMEOUT)
    assert [record.measurement for record in records] == ["reference", *measurements]
    figures = {name: value for record in records for name, value in record.figures.items()}
    assert None not in figures.values()
    assert set(figures) - {"actors"} <= {figure.name for figure in FIGURES}
    assert {"python", "fray"} <= set(versions)


def test_a_peer_that_fails_shows_the_end_of_its_log() -> None:
    with pytest.raises(PeerFailedError, match=r"nothing .*ended early[\s\S]*invalid choice: 'nothing'"):
        run_peer(Run("nothing", 2, ("tasks",)), 0, TIMEOUT)


def test_an_earlier_checkout_is_measured_by_its_own_python(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    line = '{"measurement": "tasks", "figures": {"tasks_per_second": 1}}'
    words = f"""echo '{line}'; echo '{{"versions": {{"fray": "'$PWD $PYTHONPATH $*'"}}}}'"""
    python.write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
    python.chmod(0o755)
    (run, *_) = plan_runs((), 0, quick=True, earlier=tmp_path)
    records, versions = run_peer(run, 0, TIMEOUT)
    assert [(record.engine, record.figures) for record in records] == [(EARLIER, {"tasks_per_second": 1})]
    asked = "-m benchmarks.pool.peer fray " + " ".join(run.measurements)
    assert versions["fray"] == f"{tmp_path} {tmp_path} {asked} --workers 2 --quick"


def test_a_peer_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PeerFailedError, match=r"took longer than 0\.01 s"):
        run_peer(Run("processes", 2, ("tasks",)), 0, 0.01)


class WrongEngine(Engine):
    """Loses the last result of every list."""

    def start(self, workers: int) -> None: ...

    def stop(self) -> None: ...

    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        return [function(*each) for each in arguments]

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        return list(refs[:-1])


def test_an_engine_that_loses_results_has_no_figures() -> None:
    with pytest.raises(WrongResultError):
        measure_tasks(WrongEngine(), QUICK)


def test_files_are_split_by_size_and_each_is_in_one_part() -> None:
    sources = [("a", 90), ("b", 50), ("c", 40), ("d", 10), ("e", 5)]
    assert split_evenly(sources, 2) == [["a", "d"], ["b", "c", "e"]]


@pytest.mark.parametrize("engine", [FrayThreadsEngine(), ProcessesEngine()], ids=["threads", "processes"])
def test_words_of_all_files_are_counted_once_in_engines_with_and_without_refs(
    engine: Engine, tmp_path: Path
) -> None:
    chunks = []
    for number in range(40):
        path = tmp_path / f"{number}.py"
        path.write_text("getHTTPServer = get_http_server\n" * number, encoding="utf-8")
        chunks.append([str(path)])
    engine.start(1)
    try:
        words = count_all(engine, chunks)
    finally:
        engine.stop()
    assert words == Counter(dict.fromkeys(("get", "http", "server"), 2 * sum(range(40))))
