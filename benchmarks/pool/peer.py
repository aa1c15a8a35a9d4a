"""One engine in a process of its own: `python -m benchmarks.pool.peer ENGINE ...`, for `rounds.py` to start.

Prints JSON lines, one a measurement; a last line tells the versions. Its parent ends it, with its
whole process group: some measurements leave workers busy for good.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.pool.engines.base import Engine
from benchmarks.pool.measurements import MEASUREMENTS, measure_reference
from benchmarks.pool.sizes import choose_sizes
from benchmarks.pool.workloads import do_nothing

__all__ = ["ENGINES", "main"]

ENGINES = {
    "fray": ("fray", "FrayEngine"),
    "fray-threads": ("fray", "FrayThreadsEngine"),
    "ray": ("ray", "RayEngine"),
    "dask": ("dask", "DaskEngine"),
    "processes": ("processes", "ProcessesEngine"),
}
"""Name of an engine -> module and class in `benchmarks.pool.engines`."""


def load_engine(name: str) -> Engine:
    """Import one engine's module, and its library with it."""
    module, attribute = ENGINES[name]
    engine_class: type[Engine] = getattr(
        importlib.import_module(f"benchmarks.pool.engines.{module}"), attribute
    )
    return engine_class()


def start_engine(name: str, workers: int) -> tuple[Engine, dict[str, float]]:
    """Import and start an engine and await its first result; returns it with the seconds that took."""
    began = time.perf_counter()
    engine = load_engine(name)
    imported = time.perf_counter()
    engine.start(workers)
    engine.get(engine.submit_each(do_nothing, [(0,)]))
    first = time.perf_counter()
    return engine, {"import_seconds": imported - began, "first_result_seconds": first - imported}


def open_report() -> Callable[[dict[str, Any]], None]:
    """Take standard output away from the engines, which print there, and return what writes lines to it."""
    report = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return lambda line: print(json.dumps(line), file=report)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and wait to be ended."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool.peer")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("measurements", nargs="+", choices=["start", *MEASUREMENTS])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    report = open_report()
    report({"measurement": "reference", "figures": measure_reference()})
    engine, started = start_engine(options.engine, options.workers)
    sizes = choose_sizes(options.engine, quick=options.quick)
    for name in options.measurements:
        figures = started if name == "start" else MEASUREMENTS[name](engine, sizes)
        report({"measurement": name, "figures": figures})
    versions = {name: importlib.metadata.version(name) for name in engine.distributions}
    report({"versions": {"python": sys.version.split()[0], **versions}})
    signal.pause()


if __name__ == "__main__":
    main()
