"""What holds for all tests: they hear signals, and properties are tried with the same examples each time.

No example has a time limit: machines are slow at times. Other examples each time are tried with
FRAY_NEW_EXAMPLES=1. A shell has what it starts in the background ignore some signals.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fray",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("FRAY_NEW_EXAMPLES"),
)
settings.load_profile("fray")
os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it when it is imported, and only then


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> Iterator[None]:
    """Let this process, and the programs that tests start, take signals as those of a terminal do."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
