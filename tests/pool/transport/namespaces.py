"""Two network namespaces joined by a cable, which are gone when the process that made them is."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Namespaces", "namespaces"]

PATIENCE = 60.0
FIRST, SECOND = "10.213.77.1", "10.213.77.2"
REAPER = 'read _; ip netns delete "$1" 2>/dev/null; ip netns delete "$2" 2>/dev/null; exit 0'
"""Waits for the end of its input, which comes also when the process at the other end is killed."""


@dataclass(frozen=True)
class Namespaces:
    """The names of both; the first has the address FIRST, the second SECOND."""

    first: str
    second: str

    @staticmethod
    def within(name: str, *command: str) -> list[str]:
        """Return the command that runs `command` in a namespace."""
        return ["ip", "netns", "exec", name, *command]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=PATIENCE, capture_output=True, text=True)


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Make both namespaces and remove them at the end of the block, or of this process."""
    name = f"fray-{secrets.token_hex(3)}"
    made = Namespaces(f"{name}-a", f"{name}-b")
    # The reaper is there before what it reaps, in a session of its own: signals to our group miss it.
    reaper = subprocess.Popen(
        ["/bin/sh", "-c", REAPER, "reaper", made.first, made.second],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _ip("netns", "add", made.first)
        _ip("netns", "add", made.second)
        _ip(
            "link",
            "add",
            "cable0",
            "netns",
            made.first,
            "type",
            "veth",
            "peer",
            "cable1",
            "netns",
            made.second,
        )
        for namespace, end, address in ((made.first, "cable0", FIRST), (made.second, "cable1", SECOND)):
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", namespace, "link", "set", end, "up")
        yield made
    finally:
        reaper.communicate(timeout=PATIENCE)
