"""A program with one queue doesn't load the libraries of the others; older import paths lead to the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fray.queue
import fray.queue.base
import fray.queue.http

LIBRARIES = {"aiohttp", "cloudpickle", "fsspec", "urllib3"}


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        ("Lease", set()),
        ("MemoryQueue", set()),
        ("FileQueue", {"cloudpickle", "fsspec"}),
        ("HttpQueue", {"cloudpickle", "urllib3"}),
    ],
)
def test_only_what_a_queue_needs_is_loaded(name: str, loaded: set[str]) -> None:
    code = f"import sys; from fray.queue import {name}; print(*sorted({LIBRARIES!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == loaded


def test_every_public_name_is_there() -> None:
    assert {name: getattr(fray.queue, name).__name__ for name in fray.queue.__all__} == {
        name: name for name in fray.queue.__all__
    }
    assert dir(fray.queue) == fray.queue.__all__
    assert not hasattr(fray.queue, "NoSuchQueue")


def test_older_import_paths_lead_to_the_same() -> None:
    assert fray.queue.base.MemoryQueue is fray.queue.MemoryQueue
    assert fray.queue.http.HttpQueueServer is fray.queue.HttpQueueServer
    assert not hasattr(fray.queue.base, "NoSuchQueue")
    assert not hasattr(fray.queue.http, "NoSuchQueue")
