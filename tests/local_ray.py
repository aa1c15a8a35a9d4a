"""A Ray of the tests' own: in processes, a directory and with a key of its own, and nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.free_ports import free_port

__all__ = ["RunningRay", "running_ray"]

OBJECT_BYTES = 100 * 2**20
PATIENCE = 120
STARTS = 4
PORTS = (
    "metrics-export-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "runtime-env-agent-port",
)
"""Known to Ray before its agents run: else it waits for them, and gives up early where cores are few."""
SYSTEM = {
    # A worker takes seconds to start where cores are few: those that idle stay.
    "idle_worker_killing_time_threshold_ms": 600_000,
    "num_workers_soft_limit": 6,
    # On a busy machine its parts are slow, and not dead.
    "agent_register_timeout_ms": 600_000,
    "health_check_initial_delay_ms": 60_000,
    "health_check_timeout_ms": 60_000,
}


class RunningRay(NamedTuple):
    """Where it is reached."""

    address: str
    dashboard: str
    """Of its job API; empty if it runs without."""


@contextlib.contextmanager
def running_ray(
    *,
    cpus: int = 2,
    memory: int | None = None,
    resources: Mapping[str, float] = MappingProxyType({}),
    dashboard: bool = False,
) -> Iterator[RunningRay]:
    """Start a Ray; end it with the block.

    `cpus`, `memory` (in bytes) and `resources` are what it says that it has.

    Ray gives up when its first node isn't there after 30 s, which nothing can change
    (`raylet_start_wait_time_s` in its `node.py`), and on a busy machine it may take longer: then the next try
    finds its files in memory.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # 60 by default, which its nine processes exceed on a busy machine.
        patch.setenv("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "600")
        for _ in range(STARTS):
            with _start_ray(cpus, memory, resources, dashboard=dashboard) as ray:
                if ray is not None:
                    yield ray
                    return
        raise AssertionError(f"Ray gave up {STARTS} times; what it wrote is above")


@contextlib.contextmanager
def _start_ray(
    cpus: int, memory: int | None, resources: Mapping[str, float], *, dashboard: bool
) -> Iterator[RunningRay | None]:
    """Start a Ray, and end it with the block; None where it gave up."""
    place = tempfile.mkdtemp(prefix="ray-")  # short: sockets are in it
    head, board, *agents = (free_port() for _ in range(2 + len(PORTS)))
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *(f"--num-cpus={cpus}", f"--object-store-memory={OBJECT_BYTES}", f"--temp-dir={place}"),
        *(f"--port={head}", f"--dashboard-port={board}", f"--include-dashboard={dashboard}"),
        *(f"--{name}={port}" for name, port in zip(PORTS, agents, strict=True)),
        *(f"--system-config={json.dumps(SYSTEM)}", f"--resources={json.dumps({**resources})}"),
        *([] if memory is None else [f"--memory={memory}"]),
    ]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert started.stdout is not None
        lines = (re.search(rf"[\d.]+:{head}\b", line) for line in started.stdout)
        found = next((found for found in lines if found), None)
        url = f"http://127.0.0.1:{board}" if dashboard else ""
        yield None if found is None else RunningRay(found[0], url)
    finally:
        started.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.communicate(timeout=PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        shutil.rmtree(place, ignore_errors=True)
