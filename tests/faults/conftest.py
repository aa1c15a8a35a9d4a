"""Prints at the end of a run what was done to the operator."""

from __future__ import annotations

import pytest

from tests.faults.tally import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.lives:
        terminalreporter.section("faults")
        for line in TALLY.describe():
            terminalreporter.write_line(line)
