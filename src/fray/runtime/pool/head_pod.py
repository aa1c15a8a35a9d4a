"""The program of the head in pods: `python -m fray.runtime.pool.head_pod`. Variables tell it everything.

It's a sidecar in the pod of each rank, since they share a template: on rank 0 it's the head of the attempt's
pool, elsewhere it waits. It never unpickles what users have pickled. It ends after the main container, and
the attempt's workers end with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from fray.errors import FrayError, SettingError
from fray.runtime.api.client import ApiAccess
from fray.runtime.identity import Identity
from fray.runtime.pool.head.__main__ import ATTACH, announce
from fray.runtime.pool.head.program import HeadConfig, run_head
from fray.runtime.pool.head.scaling import JobScale, ScaleLimits
from fray.runtime.pool.pod import PodPool
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.vocabulary import ENV_JOB_NAME, ENV_POOL_METRICS, ENV_POOL_STATE, EXIT_FAILURE

__all__ = ["RESTARTED", "is_first", "main", "stand_by"]

MARK = "started"
"""A file that says that this pod has had a head."""
RESTARTED = "the head of its pool was restarted, and what the pool had is lost"


def main(environ: Mapping[str, str] | None = None) -> int:
    """Be the head of an attempt's pool until SIGTERM; `environ` is by default this process's.

    Returns the exit code: 0 after SIGTERM, 1 when it failed or couldn't begin.
    """
    environ = os.environ if environ is None else environ  # noqa: TID251 - the entry of the process
    try:
        pool = PodPool.from_env(environ)
        if pool.head is None and Identity.from_env(environ).rank != 0:
            return stand_by()
        key = TransportKey.load(pool.key)
        limits = ScaleLimits.from_env(environ)
        access = ApiAccess.in_pod(environ)
        config = HeadConfig(
            token=secrets.token_hex(8),
            attach=ATTACH,
            listen=(pool.listen,),
            socket=pool.socket,
            key=key,
            metrics=_read_metrics(pool, environ.get(ENV_POOL_METRICS, "")),
            job=environ.get(ENV_JOB_NAME, ""),
            # By demand none comes that has more than the spec says: what needs more would wait for ever.
            allowed=(limits.offered,) if limits is not None and limits.offered else None,
            is_attempt=True,
            over="" if is_first(environ.get(ENV_POOL_STATE, "")) else RESTARTED,
            limits=limits,
            scale=None if limits is None or access is None else JobScale.from_env(environ, access),
        )
        sound = asyncio.run(run_head(config, announce))
    except FrayError as error:
        sys.stderr.write(f"fray: {error}\n")
        return EXIT_FAILURE
    return 0 if sound else EXIT_FAILURE


def _read_metrics(pool: PodPool, port: str) -> Address | None:
    """Return where the pool is shown, beside where its head listens; raises `AddressError` for no port."""
    return Address.parse(f"tcp:{pool.listen.host}:{port}") if port else None


def is_first(directory: str) -> bool:
    """Return whether no head has begun in this pod; without a directory nobody knows, and it's taken for so.

    Raises `SettingError` where the mark can't be made.
    """
    if not directory:
        return True
    try:
        # Of two only one can make it. It outlives this container, and ends with the pod.
        os.close(os.open(Path(directory, MARK), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise SettingError(ENV_POOL_STATE, f"names a directory that can't be used: {error}") from error
    return True


def stand_by() -> int:
    """Wait for the end of a pod that isn't the head's."""
    signals = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    sys.stdout.write("the head of the pool is in the pod of rank 0\n")
    sys.stdout.flush()
    signal.sigwait(signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
