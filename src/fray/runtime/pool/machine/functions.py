"""The functions and classes in use: one copy at the head, and how fast their tasks are."""

from __future__ import annotations

from fray.runtime.pool.machine.records import Function, RunTotals, WorkerRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import ForgetFunctions
from fray.runtime.pool.messages.specs import DIGEST_BYTES, FunctionId

__all__ = [
    "MOST_AHEAD",
    "MOST_NAMES",
    "OTHER_NAMES",
    "drop_function",
    "measure",
    "note_run",
    "send_function",
    "use_function",
]

AHEAD_SECONDS = 0.001
"""Tasks are sent ahead to a worker for about as long: more would only wait there."""
MOST_AHEAD = 32
NEW_SHARE = 0.2
"""How much the last task's seconds count in a function's mean."""
UNUSED_LIMIT = 256
"""Functions that stay known although no task uses them: most are used again soon."""
UNUSED_BYTES = 32 * 1024 * 1024
"""Of such functions, together; each worker that ran them has them, too."""
MOST_NAMES = 200
"""Names whose runs are counted apart: programs choose names, and may choose a new one for each task."""
OTHER_NAMES = "(others)"
"""Stands for all names that came later."""
NAME_LENGTH = 200
LONGEST_RUN = 1e9
"""Seconds. No run takes longer; a worker that reports such a time is wrong, and its time isn't counted."""


def use_function(tables: Tables, function: FunctionId, blob: bytes) -> bool:
    """Count one more use; return whether the head has the function."""
    known = tables.functions.get(function)
    if known is None:
        if not blob:
            return False
        known = tables.functions[function] = Function(blob)
    elif not known.uses:
        del tables.unused_functions[function]
        tables.unused_bytes -= len(known.blob)
    known.uses += 1
    return True


def drop_function(tables: Tables, function: FunctionId) -> None:
    """Count one use less. Functions without use are forgotten, those unused for longest first.

    Those that hold references at once: workers would keep what they refer to.
    """
    known = tables.functions[function]
    known.uses -= 1
    if known.uses:
        return
    unused = tables.unused_functions
    unused[function] = None
    tables.unused_bytes += len(known.blob)
    if len(function) > DIGEST_BYTES:
        _forget(tables, function)
    while len(unused) > UNUSED_LIMIT or tables.unused_bytes > UNUSED_BYTES:
        _forget(tables, next(iter(unused)))


def _forget(tables: Tables, function: FunctionId) -> None:
    del tables.unused_functions[function]
    tables.unused_bytes -= len(tables.functions.pop(function).blob)
    for worker in tables.workers.values():
        if function in worker.functions:
            worker.functions.discard(function)
            tables.commands.append(ForgetFunctions(worker.id, (function,)))


def send_function(tables: Tables, worker: WorkerRecord, function: FunctionId) -> bytes:
    """Return the encoded function if the worker hasn't got it, else nothing; it has it from now on."""
    if function in worker.functions:
        return b""
    worker.functions.add(function)
    return tables.functions[function].blob


def measure(tables: Tables, function: FunctionId, seconds: float) -> None:
    """Learn from a task's seconds how many of its kind to send ahead."""
    known = tables.functions[function]
    mean = known.seconds
    mean = seconds if mean < 0 else mean + NEW_SHARE * (seconds - mean)
    known.seconds = mean
    known.depth = MOST_AHEAD if mean * MOST_AHEAD <= AHEAD_SECONDS else int(AHEAD_SECONDS / mean)


def note_run(tables: Tables, name: str, seconds: float, *, failed: bool) -> None:
    """Count a run of a function or method that has ended, and how long it took."""
    totals = tables.totals.get(name)
    if totals is None:
        name = name[:NAME_LENGTH]
        if name not in tables.totals and len(tables.totals) >= MOST_NAMES:
            name = OTHER_NAMES
        totals = tables.totals.setdefault(name, RunTotals())
    if failed:
        totals.failed += 1
    else:
        totals.done += 1
    if 0.0 <= seconds < LONGEST_RUN:  # below 0: it ended before it began
        totals.seconds += seconds
        totals.longest = max(totals.longest, seconds)
