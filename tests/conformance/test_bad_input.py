"""Bad input: each is refused by a typed error that says what to do next, and nothing is left behind."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fray.cluster import JobId, create_cluster
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.errors import FrayError
from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, Resource
from tests.bad_requests import ALL_BAD
from tests.bad_specs import BAD_SPECS
from tests.conformance.backends import Backend
from tests.conformance.bad_input.cases import CASES
from tests.conformance.bad_input.cluster_cases import CLUSTER_CASES
from tests.conformance.bad_input.scene import Case, Scene
from tests.conformance.conftest import await_nothing_left
from tests.conformance.jobs import PATIENCE, until

ALL_CASES = [*CASES, *CLUSTER_CASES]


@pytest.fixture(scope="module")
def ended(backend: Backend) -> JobId:
    """A job that has ended; nothing else goes on, so that nothing comes by itself."""
    job = backend.cluster.launch(backend.make_pending("ended"))
    backend.cluster.terminate(job)
    backend.cluster.wait(job, timeout=PATIENCE)
    await_nothing_left(backend)
    return job


@pytest.fixture
def scene(backend: Backend, ended: JobId, tmp_path: Path) -> Iterator[Scene]:
    before = backend.list_all()
    yield Scene(backend.cluster, backend.variables, ended, tmp_path)
    until(lambda: not backend.list_all() - before, told=lambda: backend.list_all() - before)


def refusal(case: Case, scene: Scene) -> FrayError | None:
    """Return the error of a case; None where it was done, which is undone then."""
    try:
        done = case.ask(scene)
    except FrayError as error:
        return error
    assert case.beside is not None, f"it was done: {done!r}"
    assert isinstance(scene.cluster, KubernetesCluster)
    scene.cluster.session.ask(
        lambda access: access.api.delete(FRAYJOBS, str(done), namespace=access.namespace)
    )
    return None


def await_refusal(case: Case, scene: Scene) -> FrayError:
    """Return the error of a case; servers heed a rule some moments after it was made."""
    found: list[FrayError] = []

    def is_refused() -> bool:
        error = refusal(case, scene)
        found.extend(() if error is None else (error,))
        return bool(found)

    until(is_refused)
    return found[0]


@contextmanager
def made(case: Case, scene: Scene) -> Iterator[None]:
    """What has to be beside a case, for the length of a `with` block."""
    if case.beside is None:
        yield
        return
    assert isinstance(scene.cluster, KubernetesCluster)
    ask = scene.cluster.session.ask

    async def make(access: Access) -> list[tuple[Resource, Manifest]]:
        assert case.beside is not None
        objects = list(case.beside(access.namespace))
        return [
            (kind, await access.api.create(kind, each, namespace=each["metadata"].get("namespace")))
            for kind, each in objects
        ]

    async def remove(access: Access) -> None:
        for kind, each in objects:
            metadata = each["metadata"]
            await access.api.delete(kind, metadata["name"], namespace=metadata.get("namespace"))

    objects = ask(make)
    try:
        yield
    finally:
        ask(remove)
        until(lambda: refusal(case, scene) is None)  # servers forget a rule some moments later


def check(error: FrayError) -> None:
    """Check what every error has."""
    assert error.next_step
    assert str(error) == f"{error.message}\n{error.next_step}"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize("case", ALL_CASES, ids=[case.id for case in ALL_CASES])
def test_it_is_refused_and_leaves_nothing(case: Case, scene: Scene, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["backend"] not in case.on:
        pytest.skip("this backend does it, or has no such thing")
    with made(case, scene):
        error = await_refusal(case, scene)
    assert isinstance(error, case.error), error
    assert case.told in str(error)
    assert "hunter2" not in f"{error} {error!r}"
    check(error)


def test_what_is_no_request_reaches_no_backend(scene: Scene) -> None:
    for make, told in ALL_BAD:
        with pytest.raises(FrayError, match=told) as caught:
            scene.cluster.launch(make())  # type: ignore[arg-type]
        check(caught.value)


def test_what_is_no_spec_is_no_cluster(scene: Scene) -> None:
    for text, told, advice in BAD_SPECS:
        with pytest.raises(FrayError, match=re.escape(told)) as caught:
            create_cluster(text)
        assert advice in caught.value.next_step
        check(caught.value)
