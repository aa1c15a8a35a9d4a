"""How much the head keeps of values and arguments that came in messages.

A value that is small enough travels in messages, and stays in the head's memory. Beyond a limit on all of
them, clients put all but the smallest into stores, whose memory is bounded and which spill to disk.
"""

from __future__ import annotations

from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import LimitInline
from fray.runtime.pool.messages.specs import DRIVER, ClientId

__all__ = ["note_inline", "tell_limit"]


def note_inline(tables: Tables) -> None:
    """Find out whether the head keeps too much, or little enough again, and let all clients know."""
    limit = tables.inline_limit // 2 if tables.crowded else tables.inline_limit
    crowded = tables.inline_bytes > limit
    if crowded is not tables.crowded:
        tables.crowded = crowded
        for client in (DRIVER, *tables.clients):
            tell_limit(tables, client)


def tell_limit(tables: Tables, client: ClientId) -> None:
    """Let a client know whether the head keeps too much."""
    tables.commands.append(LimitInline(client, tables.crowded))
