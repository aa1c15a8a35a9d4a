"""The operator in this process, in a thread with a loop of its own: faster than a process, and breakable."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from e2e.loops import run_in_loop
from fray.kube.api import KubeApi
from fray.kube.client import (
    REQUEST_SECONDS,
    WATCH_SILENCE_SECONDS,
    KubernetesApi,
)
from fray.kube.configuration import load_configuration
from fray.kube.resources import Resource
from fray.nodepools.provider import NodePoolProvider
from fray_operator.frayjobs import FRAYJOB, KINDS
from fray_operator.kinds import Kind
from fray_operator.metrics import Metrics
from fray_operator.process import OperatorProcess
from fray_operator.settings import OperatorSettings

__all__ = ["OperatorThread", "Wrap", "run_operator"]

Wrap = Callable[[KubeApi, Callable[[], None]], KubeApi]
"""Puts something around the API; what it is given ends the operator at once, as a kill would."""

END_SECONDS = 120.0


class OperatorThread:
    """One operator, from `start` until `stop`, its own failure, or its death.

    `kubeconfig` must also be the one that `KUBECONFIG` names, for kopf.
    """

    def __init__(
        self,
        kubeconfig: Path,
        settings: OperatorSettings,
        *,
        wrap: Wrap = lambda api, _: api,
        kinds: Iterable[Kind[Any]] = KINDS,
        node_pools: NodePoolProvider | None = None,
        request_seconds: float = REQUEST_SECONDS,
        watch_silence_seconds: float = WATCH_SILENCE_SECONDS,
    ) -> None:
        self._kubeconfig, self._settings, self._wrap = kubeconfig, settings, wrap
        self._kinds, self._node_pools = kinds, node_pools
        self._request_seconds, self._silence = request_seconds, watch_silence_seconds
        self._thread = threading.Thread(target=self._main, name="operator")
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: OperatorProcess | None = None
        self._metrics = Metrics()
        self.calls: Counter[tuple[str, str, int]] = Counter()
        """Requests by method, resource and HTTP status; without kopf's."""
        self.failure: BaseException | None = None
        """What `run` raised; None while it runs and after `stop`."""

    @property
    def alive(self) -> bool:
        """Whether the operator runs."""
        return self._thread.is_alive()

    @property
    def process(self) -> OperatorProcess:
        """The process that runs, or ran."""
        assert self._process is not None
        return self._process

    def start(self) -> Self:
        """Start it; returns at once."""
        self._thread.start()
        assert self._begun.wait(END_SECONDS)
        return self

    def stop(self) -> None:
        """Tell it to stop, as SIGTERM does, and wait until it has; harmless when it has ended."""
        if self.alive and self._loop is not None:
            self._loop.call_soon_threadsafe(self.process.stop)
        self.join()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join(END_SECONDS)
        assert not self.alive, "the operator didn't end"

    def passes(self, kind: str = FRAYJOB.name) -> float:
        """Return the number of passes over objects of a kind that went well."""
        labels = {"kind": kind, "outcome": "done"}
        return self._metrics.registry.get_sample_value("fray_reconciles_total", labels) or 0.0

    @property
    def metrics(self) -> str:
        """What it shows at /metrics now."""

        async def render() -> str:
            self.process._refresh()
            return self._metrics.render().decode()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(render(), self._loop).result(END_SECONDS)

    def writes(self) -> dict[tuple[str, str], int]:
        """Return the number of writes by method and resource, without those to the Lease."""
        found: Counter[tuple[str, str]] = Counter()
        for (method, resource, _), count in list(self.calls.items()):  # its thread adds more
            if method not in ("GET", "WATCH") and not resource.startswith("leases"):
                found[method, resource] += count
        return dict(found)

    def _main(self) -> None:
        try:
            run_in_loop(self._run())
        except asyncio.CancelledError as killed:
            self.failure = killed
        except Exception as error:  # noqa: BLE001 - the test says what it expected
            self.failure = error

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        configuration = await load_configuration(kubeconfig=str(self._kubeconfig))
        client = KubernetesApi(
            configuration,
            request_seconds=self._request_seconds,
            watch_silence_seconds=self._silence,
            on_answer=self._count,
        )
        task = asyncio.current_task()
        assert task is not None
        async with client:
            api = self._wrap(client, task.cancel)
            self._process = OperatorProcess(
                api, self._settings, self._metrics, kinds=self._kinds, node_pools=self._node_pools
            )
            self._begun.set()
            await self._process.run()

    def _count(self, method: str, resource: Resource, status: int) -> None:
        self.calls[method, str(resource), status] += 1


@contextmanager
def run_operator(
    kubeconfig: Path, settings: OperatorSettings, *, kinds: Iterable[Kind[Any]] = KINDS
) -> Iterator[OperatorThread]:
    """Run an operator; it must not fail."""
    operator = OperatorThread(kubeconfig, settings, kinds=kinds).start()
    try:
        yield operator
    finally:
        operator.stop()
    assert operator.failure is None, operator.failure
