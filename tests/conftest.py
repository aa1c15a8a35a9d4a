"""What holds for all tests: they hear signals, end, and try properties with the same examples each time.

No example has a time limit: machines are slow at times. Other examples each time are tried with
FRAY_NEW_EXAMPLES=1. A shell has what it starts in the background ignore some signals.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
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

END_SECONDS = 120.0
"""How long this process may take to end once its tests have. No test has that time: nothing is left to do."""


def pytest_unconfigure() -> None:
    """End this process with an error, and show what it waits for, if something keeps it from ending."""
    faulthandler.dump_traceback_later(END_SECONDS, exit=True, file=sys.__stderr__)


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
