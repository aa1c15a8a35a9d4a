"""A process that ends as it was told to is not ended by being told again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fray.kube.configuration import Configuration
from fray_operator import __main__ as entry

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Told:
    """An operator that is told to stop as soon as it runs."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    async def run(self) -> None:
        assert not [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]


@pytest.fixture
def as_before() -> Iterator[None]:
    """The test process hears signals again after the test, and calls no deeper than before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    deepest = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(deepest)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("as_before")
def test_signals_are_ignored_from_the_end_of_the_work_to_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def configuration(**_: Any) -> Configuration:
        return Configuration()

    monkeypatch.setattr(entry, "load_configuration", configuration)
    monkeypatch.setattr(entry, "configure_logging", lambda _: None)
    monkeypatch.setattr(entry, "_give_memory_back", lambda: None)
    monkeypatch.setattr(entry, "OperatorProcess", Told)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 0
    # The loop is closed by now, which takes back its own handlers.
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}
