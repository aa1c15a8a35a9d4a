"""The pool's transport between two processes: a blocking worker and an asyncio head that echoes.

    .venv/bin/python -m benchmarks.transport [--frames N]

Prints JSON: the round trip of one small frame, small frames echoed in a second when many are under way,
and the throughput of a large buffer, over a unix socket and over TLS. Beside them stands the round trip of
`multiprocessing.Pipe` in the same run, so that a slow or busy machine can be told from slow code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from tests.pool.transport.certificates import write_key

ROOT = Path(__file__).parents[1]
BODY = b"x" * 100
LARGE = 100_000_000


def echo_pipe(pipe: Pipe) -> None:
    """Send back what comes, until it is nothing: a forked process holds both ends, so no end would come."""
    while message := pipe.recv_bytes():
        pipe.send_bytes(message)


def round_trips(call: Callable[[], object], count: int) -> dict[str, float]:
    """Return the median and the 99th percentile of `call`, in microseconds."""
    durations = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        durations.append((time.perf_counter() - started) * 1e6)
    return {
        "p50_us": round(statistics.median(durations), 1),
        "p99_us": round(statistics.quantiles(durations, n=100)[98], 1),
    }


@contextlib.contextmanager
def worker(address: str, key: Path) -> Iterator[BlockingConnection]:
    """Start a head that echoes, and yield a worker's connection to it."""
    command = [sys.executable, "-m", "tests.pool.transport.echo_head", address, str(key)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as head:
        assert head.stdout is not None
        listening = Address.parse(head.stdout.readline().strip())
        with contextlib.closing(BlockingConnection.connect(listening, TransportKey.load(key))) as connection:
            yield connection
        head.communicate()


def measured(connection: BlockingConnection, frames: int) -> dict[str, float]:
    """Return the figures of one connection."""

    def call() -> None:
        connection.send(1, BODY)
        connection.receive()

    def send_all() -> None:
        for _ in range(frames):
            connection.send(1, BODY)

    def echoed(send: Callable[[], None], count: int) -> float:
        sender = threading.Thread(target=send)
        started = time.perf_counter()
        sender.start()
        for _ in range(count):
            connection.receive()
        duration = time.perf_counter() - started
        sender.join()
        return duration

    large = bytes(LARGE)
    trips = round_trips(call, max(frames // 20, 200))
    rate = frames / echoed(send_all, frames)
    seconds = min(echoed(lambda: connection.send(1, b"", [large]), 1) for _ in range(3))
    return {
        **trips,
        "echoed_frames_per_s": round(rate),
        "large_echo_gb_per_s": round(2 * LARGE / seconds / 1e9, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=100_000)
    frames = parser.parse_args().frames
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.Process(target=echo_pipe, args=(theirs,))
    other.start()

    def through_pipe() -> None:
        ours.send_bytes(BODY)
        ours.recv_bytes()

    rows: dict[str, dict[str, float]] = {"pipe": round_trips(through_pipe, max(frames // 20, 200))}
    ours.send_bytes(b"")
    other.join()
    with tempfile.TemporaryDirectory(prefix="fray-") as directory:
        key = write_key(Path(directory) / "key")
        for name, address in (("unix", f"unix:{directory}/pool/head.sock"), ("tls", "tcp:127.0.0.1:0")):
            with worker(address, key) as connection:
                rows[name] = measured(connection, frames)
            rows[name]["round_trip_times_pipe"] = round(rows[name]["p50_us"] / rows["pipe"]["p50_us"], 2)
    where = {"python": platform.python_version(), "machine": platform.machine(), "frames": frames}
    print(json.dumps({**rows, "where": where}, indent=2))


if __name__ == "__main__":
    main()
