"""`python -m tests.integration.controller.gke_operator`: the operator, with the fake GKE of a test.

Only where GKE is and what time it is there are other than in a pod. The operator looks all the time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fray.nodepools.decisions import Decision, PendingGang
from fray.nodepools.existing import Operation
from fray.nodepools.gke import Gke
from fray.nodepools.provider import NodePoolProvider
from fray.nodepools.usage import ClusterObjects
from fray_operator import __main__ as program
from fray_operator import node_pools
from tests.gke.server import Clock, connect

ADDRESS, CLOCK, DEADLY = "TEST_GKE_ADDRESS", "TEST_GKE_CLOCK", "TEST_GKE_DEADLY"
"""Variables: where the fake is, the file that has its time, and whether a creation ends the process."""


class SharedClock(Clock):
    """A clock in a file: it passes in all processes when a test says so."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> float:
        return float(self._path.read_text())

    def sleep(self, seconds: float) -> None:
        self.set(self() + seconds)

    def set(self, now: float) -> None:
        """Say what time it is."""
        whole = self._path.with_suffix(".new")
        whole.write_text(str(now))
        whole.replace(self._path)


class DeadlyGke(Gke):
    """Kills the process when GKE has accepted a pool, before anybody hears of it."""

    def create(self, body: Mapping[str, Any]) -> Operation:
        super().create(body)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nothing survives SIGKILL")


class _ByTheFakesClock:
    """Looks at GKE's time, and asks to be called again at once."""

    def __init__(self, provider: NodePoolProvider, clock: Clock) -> None:
        self._provider, self._clock = provider, clock

    def provide(
        self,
        gangs: Sequence[PendingGang],
        objects: ClusterObjects,
        *,
        now: float,  # noqa: ARG002 - the fake's time is another one
        require: Callable[[], None] = lambda: None,
    ) -> Decision:
        decision = self._provider.provide(gangs, objects, now=self._clock(), require=require)
        return replace(decision, again=0.0)


def main() -> None:
    """Run the operator until SIGTERM."""
    build, clock = program.build_provider, SharedClock(Path(os.environ[CLOCK]))
    node_pools.LOOK_SECONDS, node_pools.PODS_SECONDS = 0.1, 0.0
    node_pools.open_client = lambda: connect(os.environ[ADDRESS])[0]
    if os.environ.get(DEADLY):
        node_pools.Gke = DeadlyGke  # type: ignore[misc] - for `build_provider`

    def build_provider(settings: Any) -> NodePoolProvider | None:
        found = build(settings)
        return None if found is None else _ByTheFakesClock(found, clock)

    program.build_provider = build_provider
    program.main()


if __name__ == "__main__":
    main()
