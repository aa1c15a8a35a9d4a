"""Who may join a pool, and when a host gives up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pool.hosts.pools import PATIENCE, Hosts, on, wait_until
from tests.pool.transport.certificates import write_key


def test_a_host_with_another_key_is_refused(driver: Hosts, tmp_path: Path) -> None:
    stranger = driver.start("stranger", key=write_key(tmp_path / "other"), patience=0)
    assert stranger.wait(PATIENCE) == 1
    # The stranger may hear of it first.
    wait_until(lambda: driver.pool._head.refusals.snapshot()["wrong_key"] > 0)
    assert driver.number("stranger") == 0
    assert driver.get(driver.context.run(abs, -1, options=on("driver"))) == 1


def test_a_task_that_came_before_its_host_runs_there(driver: Hosts) -> None:
    assert driver.get(driver.context.run(abs, -1, options=on("driver"))) == 1
    early = driver.context.run(abs, -2, options=on("late"))
    assert "no host has that" in driver.pool.stats().waits[0]
    driver.start("late")
    assert driver.get(early) == 2


def test_a_host_waits_for_a_head_that_is_not_there_yet_and_ends_with_sigterm(key: Path) -> None:
    command = [sys.executable, "-m", "fray.runtime.pool.host.worker_host", "--head", "tcp:127.0.0.1:1"]
    command += ["--key", str(key), "--objects", "tcp:127.0.0.1:0", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as host:
        assert host.stderr is not None
        tries = (line for line in host.stderr if "no connection to tcp:127.0.0.1:1" in line)
        next(tries)
        next(tries)
        host.send_signal(signal.SIGTERM)
        assert host.wait(PATIENCE) == 0


@pytest.mark.parametrize("wrong", [["--head", "nowhere"], ["--key", "/nonexistent"], ["--objects", "x"]])
def test_what_a_host_cannot_use_is_said_in_one_line(key: Path, wrong: list[str]) -> None:
    given = ["--head", "tcp:127.0.0.1:1", "--key", str(key), "--objects", "tcp:127.0.0.1:0", *wrong]
    done = subprocess.run(
        [sys.executable, "-m", "fray.runtime.pool.host.worker_host", *given],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("fray: ")
    assert "Traceback" not in done.stderr
