"""Operations of GKE begun and followed to their end, several at once, also after an interrupt.

GKE allows one operation on each node pool at a time, and none while one changes the whole cluster: what must
wait for such a one is tried again. Nothing is remembered here: GKE knows what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from fray.errors import NodePoolError
from fray.nodepools.answers import Retry, derive_error
from fray.nodepools.existing import Operation

__all__ = ["Following", "Operations", "PoolFate", "create_pools", "delete_pools"]

POLL_SECONDS: Final = 5.0
"""As Google's own clients do."""
LIMIT_SECONDS: Final = 1800.0
"""GKE itself gives up a pool after about as long."""


class Operations(Protocol):
    """What is asked of GKE."""

    def list_operations(self) -> list[Operation]:
        """Return the operations that GKE remembers."""
        ...

    def create(self, body: Mapping[str, Any]) -> Operation:
        """Begin to create a pool, or find that begun."""
        ...

    def delete(self, name: str) -> Operation | None:
        """Begin to delete a pool, or find that begun; None where it is gone."""
        ...


@dataclass
class PoolFate:
    """How an operation on one pool stands: `state` in words; `error` where it failed."""

    pool: str
    state: str = "waits to be asked for"
    operation: str | None = None
    is_done: bool = False
    error: NodePoolError | None = None


@dataclass(frozen=True)
class Following:
    """How to wait: clocks and reports are the caller's."""

    sleep: Callable[[float], None]
    clock: Callable[[], float]
    report: Callable[[Sequence[PoolFate]], None] = field(default=lambda _: None)
    limit: float = LIMIT_SECONDS


def create_pools(
    gke: Operations, bodies: Sequence[Mapping[str, Any]], how: Following, *, coming: Sequence[str] = ()
) -> list[PoolFate]:
    """Create pools, follow those that GKE makes already (`coming`), all at once; return how each went."""
    by_name = {str(body["name"]): body for body in bodies}

    def begin(name: str) -> Operation | None:
        body = by_name.get(name)
        return _find_making(gke.list_operations(), name) if body is None else gke.create(body)

    return _carry_out([*coming, *by_name], begin, gke, how, words=("being created", "created"))


def delete_pools(gke: Operations, names: Sequence[str], how: Following) -> list[PoolFate]:
    """Delete pools, all at once, and return how that went for each."""
    return _carry_out(list(names), gke.delete, gke, how, words=("being deleted", "deleted"))


def _find_making(operations: Sequence[Operation], pool: str) -> Operation | None:
    """Return what runs on a pool, else how its creation ended; None where GKE remembers neither.

    A pool may have ended since it was listed. One of the same name may have failed and been deleted before.
    """
    of_pool = [each for each in operations if each.pool == pool]
    created = [each for each in of_pool if each.is_done and each.kind == "CREATE_NODE_POOL"]
    last = max(created, key=lambda each: each.ended or 0.0, default=None)
    return next((each for each in of_pool if not each.is_done), last)


def _carry_out(
    names: Sequence[str],
    begin: Callable[[str], Operation | None],
    gke: Operations,
    how: Following,
    *,
    words: tuple[str, str],
) -> list[PoolFate]:
    """Begin and follow an operation on each pool; `words` say how it stands while it runs and after it."""
    doing, done = words
    fates = [PoolFate(name) for name in names]
    until = how.clock() + how.limit
    while True:
        for fate in fates:
            if not fate.is_done and fate.operation is None:
                _begin(fate, begin, doing, done)
        if any(fate.operation and not fate.is_done for fate in fates):
            _look(fates, gke, done)
        how.report(fates)
        waiting = [fate for fate in fates if not fate.is_done]
        if not waiting:
            return fates
        if how.clock() >= until:
            for fate in waiting:
                said = f"no end within {how.limit / 60:.0f} minutes"
                fate.error = fate.error or derive_error(
                    f"node pool {fate.pool}", said, code="DEADLINE_EXCEEDED"
                )
                fate.is_done = True
            return fates
        how.sleep(POLL_SECONDS)


def _begin(fate: PoolFate, begin: Callable[[str], Operation | None], doing: str, done: str) -> None:
    try:
        operation = begin(fate.pool)
    except NodePoolError as error:
        fate.error = error
        if error.retry != Retry.SOON:
            fate.state, fate.is_done = "refused", True
        else:
            fate.state = f"waits: {error.reason}"
        return
    fate.error = None
    if operation is None:
        fate.state, fate.is_done = done, True
        return
    fate.operation, fate.state = operation.name, doing
    if operation.is_done:
        _end(fate, operation, done)


def _look(fates: Sequence[PoolFate], gke: Operations, done: str) -> None:
    try:
        known = {each.name: each for each in gke.list_operations()}
    except NodePoolError as error:
        if error.retry != Retry.SOON:
            raise
        return
    for fate in fates:
        operation = known.get(fate.operation or "")
        if operation is not None and operation.is_done and not fate.is_done:
            _end(fate, operation, done)


def _end(fate: PoolFate, operation: Operation, done: str) -> None:
    fate.is_done = True
    fate.state = "failed" if operation.error else done
    if operation.error:
        fate.error = derive_error(f"node pool {fate.pool}", operation.error)
