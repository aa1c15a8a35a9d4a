"""The program of a pool's head: `python -m fray.runtime.pool.head --listen tcp:0.0.0.0:7077 --key DIRECTORY`.

That is how it runs in a pod: until SIGTERM, for those who hold the key. With `--owner`, it ends with that
process too, and no other hosts are awaited than those of its clients.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fray.errors import FrayError
from fray.runtime.pool.head.program import HeadConfig, run_head
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import EXIT_FAILURE

__all__ = ["ATTACH", "announce", "main"]

ATTACH = "fray.job.attached:attach"
"""What each worker calls before its first task."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the head of a pool until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="fray.runtime.pool.head", description=__doc__)
    parser.add_argument("--listen", action="append", required=True, help="address: tcp:host:port")
    parser.add_argument("--key", required=True, type=Path, help="directory of the pool's key")
    parser.add_argument("--token", default="", help="the pool's name, unique; by default random")
    parser.add_argument("--owner", type=int, default=0, help="pid of the process that the pool belongs to")
    parser.add_argument("--announce", type=int, help="descriptor to which it writes where it listens")
    parser.add_argument("--inline-limit", type=int, help="bytes of values that it keeps in messages")
    parser.add_argument("--metrics", default="", help="unix:/path or tcp:host:port, where it shows the pool")
    parser.add_argument("--job", default="", help="the job whose pool it is")
    parsed = parser.parse_args(arguments)
    try:
        key = TransportKey.load(parsed.key)
        config = HeadConfig(
            token=parsed.token or secrets.token_hex(8),
            attach=ATTACH,
            listen=tuple(map(Address.parse, parsed.listen)),
            key=key,
            metrics=Address.parse(parsed.metrics) if parsed.metrics else None,
            job=parsed.job,
            owner=parsed.owner,
            allowed=() if parsed.owner else None,
            inline_limit=parsed.inline_limit,
        )
        ready = announce if parsed.owner == 0 else partial(_tell_owner, parsed.announce)
        sound = asyncio.run(run_head(config, ready))
    except FrayError as error:
        if parsed.owner and os.getppid() != parsed.owner:
            return 0  # the owner has ended, and so may have what it had
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE
    return 0 if sound else EXIT_FAILURE


def _tell_owner(descriptor: int | None, addresses: list[Address]) -> None:
    """Tell the owner where it listens, if it wants to know: it has its own use of stdout."""
    if descriptor is not None:
        with os.fdopen(descriptor, "w", encoding="utf-8") as pipe:
            pipe.write("".join(f"{address}\n" for address in addresses))


def announce(addresses: list[Address]) -> None:
    """Say where it listens."""
    sys.stdout.write("".join(f"listening on {address}\n" for address in addresses))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
