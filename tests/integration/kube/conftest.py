"""Those who are held to the contract of `KubeApi`, each with namespaces that no other test uses."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from e2e.loops import run_in_loop
from fray.kube.api import KubeApi, Manifest, Page, WatchEvent
from fray.kube.client import KubernetesApi
from fray.kube.configuration import load_configuration
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.testing import FakeCluster
from fray.testing.memory import MemoryApi, MemoryServer

__all__ = ["Contender", "StandardLibrary", "as_pod"]

T = TypeVar("T")
_numbers = itertools.count(1)


class Contender(Protocol):
    """An implementation of `KubeApi`, with the server behind it."""

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        """Run a test against it."""

    def new_namespace(self) -> str:
        """Make a namespace."""

    def age(self) -> None:
        """Have the server no longer know what changed before version 2."""

    def end_watches(self) -> None:
        """End the open watches, if their time doesn't end them."""


@dataclass(frozen=True)
class Memory:
    """The server in memory."""

    server: MemoryServer

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        async def main() -> None:
            await test(MemoryApi(self.server))

        run_in_loop(main())

    def new_namespace(self) -> str:
        return f"memory-{next(_numbers)}"

    def age(self) -> None:
        self.server.compact()

    def end_watches(self) -> None:
        self.server.end_watches()


@dataclass(frozen=True)
class Fake:
    """A client by HTTP before the cluster that users' tests have: the official one, or that of pods."""

    cluster: FakeCluster
    token_file: Path | None = None

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        async def main() -> None:
            async with connect(self.cluster.kubeconfig) as connected:
                await test(connected)

        if self.token_file is None:
            run_in_loop(main())
        else:
            access = ApiAccess(self.cluster.url, "default", self.token_file)
            run_in_loop(test(cast("KubeApi", InThreads(ApiClient(access)))))

    def new_namespace(self) -> str:
        return f"fake-{next(_numbers)}"

    def age(self) -> None:
        self.cluster.forget_changes()

    def end_watches(self) -> None:
        self.cluster.end_watches()


@dataclass(frozen=True)
class Kubernetes:
    """The official client before kube-apiserver and etcd."""

    api: Api
    kubeconfig: Path

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        async def main() -> None:
            async with connect(self.kubeconfig) as connected:
                await test(connected)

        run_in_loop(main())

    def new_namespace(self) -> str:
        namespace = f"kube-{next(_numbers)}"
        created = self.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert created.status == 201, created.body
        return namespace

    def age(self) -> None:
        """It is: a CRD's watch cache begins when the CRD is made, long after version 1."""

    def end_watches(self) -> None:
        """Their time is up soon."""


@dataclass(frozen=True)
class StandardLibrary(Kubernetes):
    """The client of pods, called from threads as they call it, before the same server."""

    access: ApiAccess

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        run_in_loop(test(cast("KubeApi", InThreads(ApiClient(self.access)))))


class InThreads:
    """What `KubeApi` and the client of pods have in common; each call is in a thread of its own."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, *args: Any, **options: Any) -> Manifest:
        return await asyncio.to_thread(self._client.get, *args, **options)

    async def create(self, *args: Any, **options: Any) -> Manifest:
        return await asyncio.to_thread(self._client.create, *args, **options)

    async def replace(self, *args: Any, **options: Any) -> Manifest:
        return await asyncio.to_thread(self._client.replace, *args, **options)

    async def delete(self, *args: Any, **options: Any) -> None:
        await asyncio.to_thread(self._client.delete, *args, **options)

    def list_pages(self, *args: Any, **options: Any) -> AsyncIterator[Page]:
        return _in_threads(self._client.list_pages(*args, **options))

    def watch(self, *args: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        return _in_threads(self._client.watch(*args, **options))


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    try:
        while (item := await asyncio.to_thread(next, items, None)) is not None:
            yield item
    finally:
        items.close()  # type: ignore[attr-defined]


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[KubernetesApi]:
    """Connect as the user of a kubeconfig."""
    configuration = await load_configuration(kubeconfig=str(kubeconfig))
    async with KubernetesApi(configuration) as connected:
        yield connected


@pytest.fixture
def kubernetes(api: Api, control_plane: ControlPlane) -> Kubernetes:
    """The real one."""
    return Kubernetes(api, control_plane.kubeconfig)


@pytest.fixture
def standard_library(api: Api, control_plane: ControlPlane, tmp_path: Path) -> StandardLibrary:
    """The client of pods, with the rights of the administrator."""
    return as_pod(api, control_plane, tmp_path)


def as_pod(
    api: Api, control_plane: ControlPlane, folder: Path, *, token: str | None = None
) -> StandardLibrary:
    """Return the client of a pod whose account has this token; without one, that of the administrator."""
    endpoint = control_plane.endpoint
    (folder / "ca.crt").write_bytes(endpoint.authority)
    (folder / "token").write_text(token or endpoint.token or "")
    access = ApiAccess(endpoint.url, "default", folder / "token", folder / "ca.crt")
    return StandardLibrary(api, control_plane.kubeconfig, access)


@pytest.fixture
def fake() -> Iterator[Fake]:
    """The cluster of users' tests."""
    with FakeCluster() as cluster:
        yield Fake(cluster)


@pytest.fixture
def fake_standard_library(fake: Fake, tmp_path: Path) -> Fake:
    """The same, asked as from a pod."""
    (tmp_path / "token").write_text("fake")
    return Fake(fake.cluster, tmp_path / "token")


@pytest.fixture(params=["memory", "fake", "fake_standard_library", "kubernetes", "standard_library"])
def contender(request: pytest.FixtureRequest) -> Contender:
    """Each implementation in turn."""
    if request.param == "memory":
        return Memory(MemoryServer())
    other: Contender = request.getfixturevalue(request.param)
    return other


@pytest.fixture
def namespace(contender: Contender) -> str:
    """A namespace of the contender."""
    return contender.new_namespace()
