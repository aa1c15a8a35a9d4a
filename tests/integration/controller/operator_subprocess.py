"""The operator as the process that it is in a pod, for tests that kill, stop and signal it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

__all__ = ["OperatorSubprocess", "fetch", "find_free_port"]

END_SECONDS = 30.0


class OperatorSubprocess:
    """One `python -m fray_operator`, killed at the end of the `with` block if it still runs."""

    def __init__(self, kubeconfig: Path, folder: Path, *, name: str, **variables: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self.port = find_free_port()
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
                [sys.executable, "-m", "fray_operator"],
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


def find_free_port() -> int:
    """Return a port of loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
