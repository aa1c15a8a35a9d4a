"""SIGTERM ends a callable with its cleanup, unless it has other plans."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.payload.callables import encode_callable
from fray.runtime.termination_signal import exit_on_termination
from fray.termination import Ending, TerminationMessage
from tests.unit.runtime.started import Ended, Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def terminated(pod: Pod, function: Callable[..., Any]) -> Ended:
    """Send SIGTERM to a callable once it has said that it is ready."""
    payload = encode_callable(function)
    pod.mount(payload)
    process = pod.start(payload.sha256)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    return pod.end(process)


def wait_for_it() -> None:
    """Wait in short steps: Python takes no notice of a signal that comes just before it waits."""
    while True:
        time.sleep(0.01)


def clean_up() -> None:
    try:
        print("ready", flush=True)
        wait_for_it()
    finally:
        print("saved")


def test_finally_blocks_run_and_the_exit_code_is_that_of_the_signal(pod: Pod) -> None:
    ended = terminated(pod, clean_up)
    assert (ended.code, ended.out, ended.err) == (143, "saved\n", "")
    assert ended.message == TerminationMessage(Ending.EXITED, "SystemExit", "143")


def take_it() -> str:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    print("ready", flush=True)
    while not told:
        time.sleep(0.01)
    return "checkpoint"


def test_a_handler_of_the_callables_own_wins(pod: Pod) -> None:
    ended = terminated(pod, take_it)
    assert (ended.code, ended.outcome.result()) == (0, "checkpoint")


def be_killed_as_a_fork() -> int:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b".")
        wait_for_it()
    os.read(told, 1)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_dies_of_it_as_ever(pod: Pod) -> None:
    assert pod.call(be_killed_as_a_fork).outcome.result() == -signal.SIGTERM


def ignore_it() -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    return "still here"


def test_a_process_that_was_started_to_ignore_it_does(pod: Pod) -> None:
    payload = encode_callable(ignore_it)
    pod.mount(payload)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which children inherit
    try:
        process = pod.start(payload.sha256)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert pod.end(process).outcome.result() == "still here"


class SlowToPickle:
    """Is told to end while its outcome is being kept."""

    def __reduce__(self) -> tuple[Any, ...]:
        os.kill(os.getpid(), signal.SIGTERM)
        return str, ("kept",)


def return_slowly() -> object:
    return SlowToPickle()


def test_an_outcome_is_kept_to_its_end(pod: Pod) -> None:
    ended = pod.call(return_slowly)
    assert (ended.code, ended.outcome.result()) == (0, "kept")


def test_afterwards_it_is_as_before() -> None:
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(SystemExit) as caught, exit_on_termination():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
