"""Processes of rank 0's pod join its head by a socket of the pod, and by TCP where they can't open it."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.errors import AttemptOverError, PoolClosedError
from fray.job.pool import join_pool
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.sockets import listening_socket
from tests.free_ports import free_port
from tests.pool.hosts.pools import PATIENCE
from tests.pool.pods.attempt import Attempt, identity, read_line


@pytest.fixture
def volume() -> Iterator[Path]:
    """The volume that the containers share; its path has to be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def sockets(volume: Path) -> dict[str, str]:
    return {"FRAY_POOL_SOCKET": f"pod:{volume}/socket"}


def nowhere() -> str:
    """Where no head listens by TCP."""
    return f"rank-0:{free_port()}"


def test_rank_0_and_its_objects_need_no_tcp_to_the_head(attempt: Attempt, volume: Path) -> None:
    head = attempt.start_rank_0_head(**sockets(volume))
    attempt.show_rank_0()
    attempt.start_worker(FRAY_POOL_HEAD=head)
    variables = attempt.variables(100, **identity(0), **sockets(volume))
    context = join_pool({**variables, "FRAY_POOL_HEAD": nowhere()})
    attempt.contexts.append(context)
    # The worker, which knows no socket, fetches it at the address of this process's pod.
    large = context.put(bytes(1_000_000))
    assert context.get(context.run(len, large), timeout=PATIENCE) == 1_000_000
    made = context.run(bytes, 1_000_000)
    assert len(context.get(made, timeout=PATIENCE)) == 1_000_000
    assert context.stats().hosts == 2


def test_other_ranks_look_for_no_socket(attempt: Attempt, volume: Path) -> None:
    head = attempt.start_rank_0_head(**sockets(volume))
    attempt.show_rank_0()
    attempt.start_worker(FRAY_POOL_HEAD=head)
    # In their own pods the volume is empty.
    with listening_socket(Address(path=f"{volume}/other", of_pod=True)):
        more = {"FRAY_POOL_HEAD": head, "FRAY_POOL_SOCKET": f"pod:{volume}/other"}
        assert read_line(attempt.start_rank(1, **more)) == "144\n"


def test_rank_0_joins_by_tcp_where_the_volume_takes_no_sockets(attempt: Attempt, volume: Path) -> None:
    missing = sockets(volume / "missing")
    join_by_tcp(attempt, attempt.start_rank_0_head(**missing), missing)


def test_rank_0_joins_by_tcp_where_nobody_listens_at_the_socket(attempt: Attempt, volume: Path) -> None:
    listening_socket(Address(path=f"{volume}/socket", of_pod=True)).close()
    join_by_tcp(attempt, attempt.start_rank_0_head(), sockets(volume))


def join_by_tcp(attempt: Attempt, head: str, socket: dict[str, str]) -> None:
    attempt.show_rank_0()
    attempt.start_worker(FRAY_POOL_HEAD=head)
    rank = attempt.start_rank(0, FRAY_POOL_HEAD=head, **socket)
    assert read_line(rank) == "144\n"
    assert rank.wait(PATIENCE) == 0


def test_a_program_that_starts_before_the_head_waits_for_its_socket(attempt: Attempt, volume: Path) -> None:
    rank = attempt.start_rank(0, FRAY_POOL_HEAD=nowhere(), **sockets(volume))
    head = attempt.start_rank_0_head(**sockets(volume))
    attempt.show_rank_0()
    attempt.start_worker(FRAY_POOL_HEAD=head)
    assert read_line(rank) == "144\n"
    assert rank.wait(PATIENCE) == 0


def test_a_head_that_is_restarted_tells_by_its_socket_that_the_attempt_is_over(
    attempt: Attempt, volume: Path
) -> None:
    own = {**sockets(volume), "FRAY_POOL_STATE": str(volume)}
    attempt.start_rank_0_head(**own)
    (head,) = attempt.processes
    head.send_signal(signal.SIGKILL)
    assert head.wait(PATIENCE) == -signal.SIGKILL
    assert (volume / "socket").is_socket()
    attempt.start_rank_0_head(**own)
    variables = attempt.variables(100, **identity(0), **own)
    with pytest.raises(AttemptOverError, match="restarted"):
        join_pool({**variables, "FRAY_POOL_HEAD": nowhere()})


def test_a_head_that_ends_says_why_and_takes_its_socket_along(attempt: Attempt, volume: Path) -> None:
    attempt.start_rank_0_head(**sockets(volume))
    (head,) = attempt.processes
    variables = attempt.variables(100, **identity(0), **sockets(volume))
    attempt.contexts.append(context := join_pool({**variables, "FRAY_POOL_HEAD": nowhere()}))
    head.send_signal(signal.SIGTERM)
    assert head.wait(PATIENCE) == 0
    with pytest.raises(PoolClosedError, match=r"attempt is over \(the main container of rank 0 has ended"):
        context.get(context.run(abs, -1), timeout=PATIENCE)
    assert list(volume.iterdir()) == []
