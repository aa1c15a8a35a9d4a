"""The operator as the process that it is in a pod, for tests that kill, stop and signal it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

__all__ = ["OperatorSubprocess", "fetch", "reserved_port"]

END_SECONDS = 120.0


class OperatorSubprocess:
    """One `python -m fray_operator`, killed at the end of the `with` block if it still runs."""

    module = "fray_operator"
    """What runs as the main program."""

    def __init__(self, kubeconfig: Path, folder: Path, *, name: str, port: int, **variables: str) -> None:
        self.name, self.port = name, port
        self._log = folder / f"{name}.log"
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FRAY_")},
            "KUBECONFIG": str(kubeconfig),
            "FRAY_POD_NAME": name,
            "FRAY_HTTP_HOST": "127.0.0.1",
            "FRAY_HTTP_PORT": str(self.port),
            **variables,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_SECONDS)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        """All that it has logged so far."""
        return self._log.read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} runs on: {self.log}") from None

    def fetch(self, path: str) -> tuple[int, str]:
        """Return status and text of a page that it serves; status 0 while it doesn't listen."""
        return fetch(self.port, path)


def fetch(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page that an operator of this machine serves; status 0 if none listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=END_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()


@contextmanager
def reserved_port() -> Iterator[int]:
    """Give a port of loopback that the system hands to nobody else, for an operator that listens there.

    It stays bound: who asks for it by number, and allows the reuse of addresses as asyncio does, may listen.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port
