"""What each measurement needs to know of the cluster that it is made on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.cluster.api import Api
from e2e.release import Release

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """A cluster with Fray installed; `nodes` are the names of its fake nodes, `say` is told of progress."""

    release: Release
    api: Api
    nodes: tuple[str, ...]
    say: Callable[[str], None]
