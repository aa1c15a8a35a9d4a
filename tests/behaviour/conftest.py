"""One context of each kind for every test, and gates that are open again when the test ends."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, clear_job_context, create_job_ctx, set_job_context
from fray.job.traits import CONTEXTS
from fray.vocabulary import ENV_ROOT_JOB
from tests.behaviour.actors_of_jobs import JOB, KindTraits, name_all_actors
from tests.behaviour.dask_clusters import start_dask_cluster
from tests.behaviour.gates import Gate, Signal
from tests.local_ray import running_ray

KINDS = (
    {"job": JOB}
    if os.environ.get(ENV_ROOT_JOB)
    else {
        kind: KindTraits(**vars(traits)) for kind, traits in {**CONTEXTS, "hosts": CONTEXTS["pool"]}.items()
    }
)
"""Kind of context -> its traits; "hosts" is a pool on several hosts, which this process has joined.

Where this process is a job's there is only "job": all its actors are FrayActors.
"""
JOINING = ("dask", "hosts")
"""Kinds whose contexts join what runs for the whole session."""


@pytest.fixture(params=list(KINDS))
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
    traits = KINDS[str(kind)]
    wanted = ((name, value) for mark in item.iter_markers("traits") for name, value in mark.kwargs.items())
    needed = (feature for mark in item.iter_markers("needs") for feature in mark.args)
    return all(getattr(traits, name) == value for name, value in wanted) and not any(
        feature in traits.refuses for feature in needed
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "traits(name=value): only for contexts with these traits")
    config.addinivalue_line("markers", "needs(feature): only for contexts that don't refuse these features")


@pytest.fixture
def traits(kind: str) -> KindTraits:
    return KINDS[kind]


@pytest.fixture(scope="session")
def join() -> Iterator[dict[str, Callable[[int], JobContext]]]:
    """The kinds of `JOINING`, and what joins each by the number of its workers."""
    from tests.behaviour.pools_of_hosts import (  # noqa: PLC0415 - needs the operator's code, which pods lack
        join_pool_of_hosts,
        start_pool_of_hosts,
    )

    with contextlib.ExitStack() as stack:
        dask = functools.cache(functools.partial(start_dask_cluster, stack))
        pool = functools.cache(functools.partial(start_pool_of_hosts, stack))
        yield {
            "dask": lambda workers: create_job_ctx("dask", max_workers=workers, address=dask(workers)),
            "hosts": lambda workers: join_pool_of_hosts(pool(workers)),
        }


@pytest.fixture(scope="session")
def made_ray() -> Iterator[str]:
    """One Ray for all tests, whose contexts join it: its address. `auto` does not find it in this process."""
    with running_ray() as ray, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fray.job.ray.is_joined", lambda: False)
        patch.setattr("fray.job.ray._started", ray.address)  # as if this process had: it never grows
        with create_job_ctx("ray", address=ray.address, log_to_driver=False, configure_logging=False):
            yield ray.address


@pytest.fixture
def make_ctx(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., JobContext]]:
    made: list[JobContext] = []
    join = request.getfixturevalue("join") if kind in JOINING else {}
    if kind == "ray":
        request.getfixturevalue("made_ray")
    if kind == "job":
        request.getfixturevalue("named_actors")

    def make(max_workers: int = 2) -> JobContext:
        if kind in join:
            made.append(join[kind](max_workers))
        else:
            engine = "pool" if kind == "job" else kind
            options = {"head": os.environ.get("POOL_HEAD", "thread")} if engine == "pool" else {}
            made.append(create_job_ctx(engine, max_workers=max_workers, **options))
        if kind == "job":
            set_job_context(made[-1])  # as that of a job's process is
        return made[-1]

    yield make
    for context in made:
        context.shutdown()
    clear_job_context()


@pytest.fixture(autouse=True)
def lost_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what Dask's clients have left, after each test of theirs.

    One that closes cancels the connections that it is just making, and closes its loop. Tornado has no way to
    end one that is being made, so that its socket is closed as garbage, which is a warning. Not of another
    test, and not hidden where it is ours: garbage of the tests before is collected first.
    https://github.com/tornadoweb/tornado/blob/v6.6.1/tornado/tcpclient.py
    """
    if "dask" not in request.node.nodeid:
        yield
        return
    gc.collect()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def named_actors() -> Iterator[None]:
    """All actors of a test have names, and are gone after it."""
    with name_all_actors():
        yield


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
