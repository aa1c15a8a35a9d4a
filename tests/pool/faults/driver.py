"""A driver that is killed: `python -m tests.pool.faults.driver FOLDER` works without end, and says so."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fray.job import JobContext, create_job_ctx
from tests.behaviour.gates import append
from tests.pool.chaos.inspection import pool_of
from tests.pool.faults import values


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def main() -> None:
    """Load a pool with everything, tell where its files are, and wait for ever."""
    folder = Path(sys.argv[1])
    with create_job_ctx("pool", max_workers=4, memory=32 * 1024**2) as context:
        assert isinstance(context, JobContext)
        store = pool_of(context).objects._store
        kept = [context.run(values.make_bytes, 3 * 1024**2 + n) for n in range(20)]
        stream = context.run(values.give, folder / "made", 1_000, 100_000)
        deep = context.run(values.nest, 30)
        context.wait(kept, len(kept))
        context.wait([stream])
        context.get(deep)
        slow = [context.run(sleep, 600) for _ in range(3)]
        append(folder / "places", str(store.directory))
        append(folder / "places", str(store.spill_directory))
        if "--patient" in sys.argv:
            try:
                append(folder / "places", "ready")  # within: an interrupt may come as soon as it's written
                context.get(slow)
            except KeyboardInterrupt:
                append(folder / "interrupted", str(context.get(context.run(pow, 2, 5, options=None))))
        else:
            append(folder / "places", "ready")
        context.get(slow)


if __name__ == "__main__":
    main()
