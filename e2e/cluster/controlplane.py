"""A real apiserver with its etcd on loopback, for as long as one test run.

The servers belong to a process of their own (`controlplane_process`), which ends them when the owner is
gone for whatever reason. There are no controllers and no nodes: nothing is scheduled, garbage-collected or
reconciled unless the test does it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.cluster.api import Api
from e2e.cluster.build import Binaries
from e2e.cluster.errors import ControlPlaneError

__all__ = ["ControlPlane", "Endpoint"]

_REPOSITORY = Path(__file__).parents[2]
_STOP_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a running control plane is, and how to be its administrator."""

    url: str
    authority: bytes
    """PEM of the authority that signed the serving certificate."""
    token: str
    """Bearer token of a user in `system:masters`."""
    directory: Path
    """Logs (`kube-apiserver.log`, `etcd.log`), keys and data; removed at the end."""
    process_pid: int
    """The process that owns both servers; it ends them when it is ended."""
    apiserver_pid: int
    etcd_pid: int

    @property
    def kubeconfig(self) -> Path:
        """File with the context `fray-test`."""
        return self.directory / "kubeconfig"


class ControlPlane:
    """A control plane of its own, running between `start` and `stop` or inside a `with` block.

    Any number can run side by side. It never outlives its owner: not on SIGKILL, and not when the owner
    forked. RBAC is on; service-account tokens can be asked for by TokenRequest. The ServiceAccount
    admission plugin is off, as pods could not be created without a controller that makes the default
    account.

    Parameters: `binaries` from `build(CONTROL_PLANE)`; `timeout` seconds until it must be ready.
    """

    def __init__(self, binaries: Binaries, *, timeout: float = 180.0) -> None:
        self._binaries = binaries
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None
        self._endpoint: Endpoint | None = None

    def start(self) -> Endpoint:
        """Start it and return once it is ready. Raises ControlPlaneError with the end of the logs."""
        if self._process is not None:
            raise ControlPlaneError("this control plane was started already")
        command = [
            *(sys.executable, "-m", "e2e.cluster.controlplane_process"),
            *("--apiserver", str(self._binaries["kube-apiserver"]), "--etcd", str(self._binaries["etcd"])),
            *("--owner", str(os.getpid()), "--timeout", str(self._timeout)),
        ]
        # A session of its own: Ctrl-C in a terminal must reach the owner alone, which then stops it in order.
        self._process = subprocess.Popen(
            command,
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = ""
        try:
            line = self._process.stdout.readline()
        finally:
            if not line:
                self._end()
        report: dict[str, Any] = json.loads(line) if line else {"problem": "its process ended without a word"}
        if "problem" in report:
            self._end()
            raise ControlPlaneError(report["problem"], report.get("log_tail", ""))
        self._endpoint = Endpoint(
            url=report["url"],
            authority=report["authority"].encode(),
            token=report["token"],
            directory=Path(report["directory"]),
            process_pid=self._process.pid,
            apiserver_pid=report["apiserver_pid"],
            etcd_pid=report["etcd_pid"],
        )
        return self._endpoint

    def stop(self) -> None:
        """End both servers and remove their directory; harmless when it is not running.

        Raises ControlPlaneError when a server had ended before by itself.
        """
        running, self._endpoint = self._endpoint is not None, None
        code = self._end()
        if running and code != 0:
            raise ControlPlaneError(f"the control plane had ended before it was stopped (exit code {code})")

    @property
    def endpoint(self) -> Endpoint:
        """Where it is. Raises ControlPlaneError when it is not running."""
        if self._endpoint is None:
            raise ControlPlaneError("this control plane is not running: use it inside its `with` block")
        return self._endpoint

    @property
    def url(self) -> str:
        """Address of the apiserver."""
        return self.endpoint.url

    @property
    def kubeconfig(self) -> Path:
        """File with the context `fray-test`, for any client."""
        return self.endpoint.kubeconfig

    def api(self, *, token: str | None = None) -> Api:
        """A client for any path, as administrator or with the given bearer token."""
        endpoint = self.endpoint
        return Api(endpoint.url, authority=endpoint.authority, token=token or endpoint.token)

    def _end(self) -> int:
        """Have the process clean up and end; returns its exit code, negative when it had to be killed."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # the sign to stop
        try:
            return process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its servers die with it
            return process.wait()
        finally:
            process.stdout.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
