"""A process that echoes frames: the head of tests and benchmarks that need one of its own.

    python -m tests.pool.transport.echo_head ADDRESS KEY_DIRECTORY

Prints where it listens; ends when its input does, and prints then what it refused, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Connection, serve
from fray.runtime.pool.transport.keys import TransportKey


def echo(connection: Connection) -> None:
    connection.on_frame = lambda frame: connection.send(
        frame.kind, frame.body, frame.buffers, flags=frame.flags
    )


async def main(address: str, key_directory: str) -> None:
    server = await serve(Address.parse(address), TransportKey.load(Path(key_directory)), echo)
    print(server.address, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.close()
    print(json.dumps(server.refusals.snapshot()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
