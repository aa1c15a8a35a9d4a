"""The process that owns the two servers of a control plane: `python -m e2e.cluster.controlplane_process`.

It exists so that nothing is left behind: it ends the servers and removes their directory when its standard
input closes or its owner dies, and the kernel ends the servers when it is killed itself. It has one thread
on purpose: the kernel's parent-death signal follows the thread that forked. Only `controlplane` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.api import Api
from e2e.cluster.certificates import Authority, build_key_pem, write_private
from e2e.cluster.errors import ControlPlaneError
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.cluster.servers import build_apiserver_command, build_etcd_command
from e2e.cluster.workdir import hold_directory

__all__ = ["main"]

PREFIX = "fray-control-plane-"
_PORT_ATTEMPTS = 5
_POLL_SECONDS = 0.05
_TAIL_LINES = 25
_ACCESS_FLAGS = (
    "--token-auth-file=tokens.csv",
    "--authorization-mode=RBAC",
    # It refuses pods in a namespace whose default account a controller has not made yet; no controller runs.
    "--disable-admission-plugins=ServiceAccount",
    "--endpoint-reconciler-type=none",
)
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: the child may only call what needs no lock and no import.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class _PortTakenError(Exception):
    """Somebody else got the port between choosing and binding it."""


@dataclass(frozen=True)
class _Access:
    """What an administrator needs: the PEM of the authority and a bearer token."""

    authority: bytes
    token: str


@dataclass(frozen=True)
class _Server:
    """One server: its process and the log that it writes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """The last lines of its log, each with the server's name."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(f"{self.name}: {line}" for line in lines)


def _spawn(name: str, command: Sequence[str], directory: Path) -> _Server:
    log = directory / f"{name}.log"
    parent = os.getpid()

    def die_with_parent() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above: no signal will come
                os._exit(1)

    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
    except OSError as error:
        raise ControlPlaneError(f"{command[0]} does not start: {error}") from error
    return _Server(name, process, log)


def _end(servers: Sequence[_Server]) -> None:
    """Kill: the data is thrown away, and a graceful apiserver waits for its watches."""
    for server in servers:
        server.process.kill()
    for server in servers:
        server.process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_ready(api: Api, servers: Sequence[_Server], deadline: float) -> None:
    """Return when it is ready. Raises _PortTakenError or ControlPlaneError."""
    while True:
        for server in servers:
            code = server.process.poll()
            if code is None:
                continue
            tail = server.tail()
            if "address already in use" in tail:
                raise _PortTakenError
            raise ControlPlaneError(f"{server.name} ended with exit code {code} while starting", tail)
        try:
            # The default namespace is made after the server calls itself ready.
            if api.get("/readyz").ok and api.get("/api/v1/namespaces/default").ok:
                return
        except (OSError, http.client.HTTPException):
            pass  # not listening yet
        if time.monotonic() > deadline:
            tails = "\n".join(server.tail() for server in servers)
            raise ControlPlaneError("the control plane was not ready in time", tails)
        time.sleep(_POLL_SECONDS)


def _await_end(owner: int, servers: Sequence[_Server]) -> _Server | None:
    """Wait until the owner wants the end or is dead (None), or a server ended by itself (that server)."""
    poller = select.poll()
    poller.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    watched: dict[int, _Server | None] = {sys.stdin.fileno(): None}
    if hasattr(os, "pidfd_open"):
        # The pipe alone is not enough: a process that the owner forked holds its other end too.
        watched[os.pidfd_open(owner)] = None
        watched |= {os.pidfd_open(server.process.pid): server for server in servers}
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
    first, _ = poller.poll()[0]
    return watched[first]


def _serve_on_free_port(
    program: str, directory: Path, servers: list[_Server], access: _Access, deadline: float
) -> str:
    """Add a ready apiserver to `servers`, which holds etcd; returns its URL."""
    for _ in range(_PORT_ATTEMPTS):
        port = _free_port()
        url = f"https://127.0.0.1:{port}"
        command = build_apiserver_command(program, address="127.0.0.1", port=port, extra=_ACCESS_FLAGS)
        servers[1:] = [_spawn("kube-apiserver", command, directory)]
        api = Api(url, authority=access.authority, token=access.token, timeout=5)
        try:
            _await_ready(api, servers, deadline)
        except _PortTakenError:
            continue
        return url
    raise ControlPlaneError(
        f"others took all of {_PORT_ATTEMPTS} free ports on loopback before they were bound"
    )


def _serve(options: argparse.Namespace, directory: Path) -> int:
    authority = Authority()
    serving = authority.issue_server("kube-apiserver", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
    access = _Access(authority.certificate, secrets.token_urlsafe(24))
    write_private(directory / "server.crt", serving.certificate)
    write_private(directory / "server.key", serving.key)
    write_private(directory / "accounts.key", build_key_pem())
    write_private(directory / "tokens.csv", f'{access.token},fray-test,fray-test,"system:masters"\n'.encode())
    deadline = time.monotonic() + options.timeout
    servers = [_spawn("etcd", build_etcd_command(options.etcd), directory)]
    try:
        url = _serve_on_free_port(options.apiserver, directory, servers, access, deadline)
        write_kubeconfig(
            directory / "kubeconfig",
            build_kubeconfig(url=url, authority=access.authority, token=access.token),
        )
        _report(
            url=url,
            token=access.token,
            authority=access.authority.decode(),
            directory=str(directory),
            etcd_pid=servers[0].process.pid,
            apiserver_pid=servers[1].process.pid,
        )
        ended = _await_end(options.owner, servers)
        if ended is not None:
            print(f"{ended.name} ended by itself:\n{ended.tail()}", file=sys.stderr)
            return 1
        return 0
    finally:
        _end(servers)


def _report(**content: object) -> None:
    """Tell the owner, in the one line that it reads."""
    with contextlib.suppress(BrokenPipeError):  # the owner is gone; `_await_end` sees that too
        print(json.dumps(content), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until the owner wants the end; returns 0 then, 1 when a server failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apiserver", required=True)
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--owner", type=int, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    options = parser.parse_args(arguments)
    # SIGTERM unwinds like any other end, so the directory goes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with hold_directory(PREFIX) as directory:
            return _serve(options, directory)
    except ControlPlaneError as error:
        _report(problem=error.problem, log_tail=error.log_tail)
        return 1
    except OSError as error:  # disk full, no permission
        _report(problem=f"the control plane could not be set up: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
