"""Those who are held to the contract of `KubeApi`, each with namespaces that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from e2e.loops import run_in_loop
from fray.kube.api import KubeApi
from fray.kube.client import KubernetesApi
from fray.kube.configuration import load_configuration
from tests.unit.controller.memory_server import MemoryApi, MemoryServer

__all__ = ["Contender"]

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
class Kubernetes:
    """The official client before kube-apiserver and etcd."""

    api: Api
    kubeconfig: Path

    def run(self, test: Callable[[KubeApi], Awaitable[None]]) -> None:
        async def main() -> None:
            async with connect(self.kubeconfig) as client:
                await test(client)

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


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[KubernetesApi]:
    """Connect as the user of a kubeconfig."""
    configuration = await load_configuration(kubeconfig=str(kubeconfig))
    async with KubernetesApi(configuration) as client:
        yield client


@pytest.fixture
def kubernetes(api: Api, control_plane: ControlPlane) -> Kubernetes:
    """The real one."""
    return Kubernetes(api, control_plane.kubeconfig)


@pytest.fixture(params=["memory", "kubernetes"])
def contender(request: pytest.FixtureRequest) -> Contender:
    """Each implementation in turn."""
    if request.param == "memory":
        return Memory(MemoryServer())
    real: Kubernetes = request.getfixturevalue("kubernetes")
    return real


@pytest.fixture
def namespace(contender: Contender) -> str:
    """A namespace of the contender."""
    return contender.new_namespace()
