"""Take a host's kubelet away without its pods, and give it back: what a crash of one program does to a node.

The pods run on without it. A whole host that crashes is `provider.crash_host`; only the provider `local` can
do either of these (fault `kill-program`).
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from e2e.cluster import cgroups, node
from e2e.cluster.build import build
from e2e.cluster.layout import Host

__all__ = ["freeze_kubelet", "kill_in_pod", "kill_kubelet", "start_kubelet", "thaw_kubelet"]

_KUBELET = "kubelet"


def freeze_kubelet(host: Host) -> None:
    """Stop the kubelet where it is (SIGSTOP)."""
    _signal(cgroups.pids_in(host.name, _KUBELET), signal.SIGSTOP)


def thaw_kubelet(host: Host) -> None:
    """Let a kubelet that was stopped go on; harmless for one that runs."""
    _signal(cgroups.pids_in(host.name, _KUBELET), signal.SIGCONT)


def kill_kubelet(host: Host) -> None:
    """End the kubelet at once, frozen or not."""
    cgroups.kill_group(host.name, _KUBELET)


def start_kubelet(host: Host) -> None:
    """Start a kubelet that was killed, without waiting for its node; harmless when it runs."""
    node.start_kubelet(host, build(("kubelet",)))


def kill_in_pod(host: Host, uid: str, word: str) -> bool:
    """End, at once, the processes of a pod whose command line has `word`; returns whether there were any."""
    found = []
    for pid in cgroups.pids_in_pod(host.name, uid):
        with contextlib.suppress(OSError):  # ended by now
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    _signal(found, signal.SIGKILL)
    return bool(found)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
