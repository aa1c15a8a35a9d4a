"""Where a running cluster keeps its files. There is one cluster per machine, so the places are fixed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["KUBECONFIG", "LOCK", "LOGS", "SECRETS", "STATE", "host_directory"]

STATE = Path("/var/lib/fray-cluster")
"""Everything that `down` removes."""

LOGS = STATE / "logs"
"""One file per daemon, `<host>/<daemon>.log`."""

SECRETS = STATE / "secrets"
"""The authority, keys and kubeconfigs of the components."""

LOCK = Path("/run/fray-cluster.lock")
"""Held by the one command that is changing the cluster; never removed, as its removal would let two in."""

KUBECONFIG = Path(__file__).parents[2] / ".cluster" / "kubeconfig"
"""For users and tests, in this checkout."""


def host_directory(name: str) -> Path:
    """The disk of one host."""
    return STATE / "hosts" / name
