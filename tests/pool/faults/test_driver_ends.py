"""However the driver ends, its processes, files and sockets end soon after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.gates import lines
from tests.pool.chaos.inspection import settles
from tests.pool.chaos.leaks import marked_processes
from tests.pool.driver.processes import descendants, nanny_of

ROOT = Path(__file__).parents[3]


class Driver:
    """A driver in a process group of its own, whose processes all carry a mark."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.mark = f"FRAY_TEST_DRIVER={folder}"
        # Not the driver's own mark, but that of its children too: environments are inherited.
        environment = {**os.environ, "FRAY_TEST_DRIVER": str(folder), "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pool.faults.driver", str(folder), *arguments],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert settles(lambda: self.process.poll() is not None or "ready" in lines(folder / "places"))

    @property
    def places(self) -> list[Path]:
        memory, disk, _ = lines(self.folder / "places")
        return [Path(memory), Path(disk)]

    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return not marked_processes(self.mark) and not any(place.exists() for place in self.places)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def driver(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Driver]:
    made = Driver(tmp_path, *getattr(request, "param", ()))
    yield made
    made.close()


def test_killed(driver: Driver) -> None:
    assert settles(lambda: len(marked_processes(driver.mark)) >= 6)  # with the nanny and four workers
    assert all(place.exists() for place in driver.places)
    driver.process.kill()
    assert driver.process.wait() == -signal.SIGKILL
    assert settles(driver.is_gone), marked_processes(driver.mark)


def test_killed_while_a_worker_stands_still(driver: Driver) -> None:
    nanny = nanny_of(driver.process.pid)
    for pid in descendants(nanny):
        os.kill(pid, signal.SIGSTOP)
    driver.process.kill()
    assert settles(driver.is_gone), marked_processes(driver.mark)


def test_killed_after_its_nanny(driver: Driver) -> None:
    nanny = nanny_of(driver.process.pid)
    os.kill(driver.process.pid, signal.SIGSTOP)
    os.kill(nanny, signal.SIGKILL)
    driver.process.kill()
    assert settles(lambda: not marked_processes(driver.mark)), marked_processes(driver.mark)
    # Nobody was left to remove the files: the next pool of this user does, and one may have come already
    # to those in shared memory.
    _, disk = driver.places
    assert disk.exists()
    command = [
        sys.executable,
        "-c",
        "from fray.job import create_job_ctx; create_job_ctx('pool', max_workers=1)",
    ]
    environment = {**os.environ, "TMPDIR": str(driver.folder)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=60)
    assert driver.is_gone()


def test_interrupted_at_the_terminal(driver: Driver) -> None:
    os.killpg(driver.process.pid, signal.SIGINT)
    _, said = driver.process.communicate(timeout=60)
    assert driver.process.returncode == -signal.SIGINT
    assert said.decode().rstrip().endswith("KeyboardInterrupt")
    assert said.count(b"Traceback") == 1  # the driver's own; workers say nothing
    assert settles(driver.is_gone), marked_processes(driver.mark)


@pytest.mark.parametrize("driver", [("--patient",)], indirect=True)
def test_an_interrupt_that_the_driver_takes_leaves_the_pool_alive(driver: Driver) -> None:
    os.killpg(driver.process.pid, signal.SIGINT)
    assert settles(lambda: lines(driver.folder / "interrupted") == ["32"])
    os.killpg(driver.process.pid, signal.SIGINT)
    driver.process.communicate(timeout=60)
    assert driver.process.returncode == -signal.SIGINT
    assert settles(driver.is_gone), marked_processes(driver.mark)


def test_terminated(driver: Driver) -> None:
    driver.process.terminate()
    assert driver.process.wait(60) == -signal.SIGTERM
    assert settles(driver.is_gone), marked_processes(driver.mark)
