"""One context of each kind for every test, and gates that are open again when the test ends."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, clear_job_context, create_job_ctx
from fray.job.traits import CONTEXTS, Traits
from tests.behaviour.dask_clusters import start_dask_cluster
from tests.behaviour.gates import Gate, Signal
from tests.local_ray import running_ray


@pytest.fixture(params=list(CONTEXTS))
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of context; a test marked `traits(...)` gets only those that have these traits."""
    kind: str = request.param
    return kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the combinations that a test's `traits` and `needs` marks exclude: they are no skipped tests.

    Those on Ray come last of all: a process that has a Ray is no place for tests of other engines.
    """
    items[:] = sorted((item for item in items if _wanted(item)), key=_on_ray)


def _on_ray(item: pytest.Item) -> bool:
    return _kind_of(item) == "ray" or "made_ray" in getattr(item, "fixturenames", ())


def _kind_of(item: pytest.Item) -> object:
    return item.callspec.params.get("kind") if hasattr(item, "callspec") else None


def _wanted(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or (kind := _kind_of(item)) is None:
        return True
    traits = CONTEXTS[str(kind)]
    wanted = ((name, value) for mark in item.iter_markers("traits") for name, value in mark.kwargs.items())
    needed = (feature for mark in item.iter_markers("needs") for feature in mark.args)
    return all(getattr(traits, name) == value for name, value in wanted) and not any(
        feature in traits.refuses for feature in needed
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "traits(name=value): only for contexts with these traits")
    config.addinivalue_line("markers", "needs(feature): only for contexts that don't refuse these features")


@pytest.fixture
def traits(kind: str) -> Traits:
    return CONTEXTS[kind]


@pytest.fixture(scope="session")
def addresses() -> Iterator[dict[str, Callable[[int], str]]]:
    """The kinds whose contexts join a cluster of the session, and what gives the address of theirs."""
    with contextlib.ExitStack() as stack:
        yield {"dask": functools.cache(functools.partial(start_dask_cluster, stack))}


@pytest.fixture(scope="session")
def made_ray() -> Iterator[str]:
    """One Ray for all tests, whose contexts join it: its address. `auto` does not find it in this process."""
    with running_ray() as ray, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fray.job.ray.is_joined", lambda: False)
        patch.setattr("fray.job.ray._started", ray.address)  # as if this process had: it never grows
        with create_job_ctx("ray", address=ray.address, log_to_driver=False, configure_logging=False):
            yield ray.address


@pytest.fixture
def make_ctx(
    kind: str, addresses: dict[str, Callable[[int], str]], request: pytest.FixtureRequest
) -> Iterator[Callable[..., JobContext]]:
    made: list[JobContext] = []
    if kind == "ray":
        request.getfixturevalue("made_ray")

    def make(max_workers: int = 2) -> JobContext:
        options = {"address": addresses[kind](max_workers)} if kind in addresses else {}
        if kind == "pool":
            options["head"] = os.environ.get("POOL_HEAD", "thread")
        made.append(create_job_ctx(kind, max_workers=max_workers, **options))
        return made[-1]

    yield make
    for context in made:
        context.shutdown()
    clear_job_context()


@pytest.fixture
def gate(tmp_path: Path, make_ctx: Callable[..., JobContext]) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture
def signal(tmp_path: Path) -> Signal:
    return Signal(tmp_path / "signal")


@pytest.fixture
def ctx(make_ctx: Callable[..., JobContext]) -> JobContext:
    return make_ctx()
