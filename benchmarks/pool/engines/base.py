"""What a measurement asks of an engine. No engine is imported here.

The interface is thin on purpose: every engine is driven in the form that its own documentation gives, and
what lies between it and the measurement is one Python call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

__all__ = ["Engine", "Ref"]

Ref = Any
"""An engine's own handle of a value that is yet to come."""


class Engine(ABC):
    """One engine in this process. The constructor imports it, `start` makes it ready to take tasks."""

    distributions: ClassVar[tuple[str, ...]]
    """Distributions whose versions belong beside its figures."""
    has_objects: ClassVar[bool] = True
    """Whether a value can be stored once and read by many tasks."""
    has_actors: ClassVar[bool] = True
    keeps_call_order: ClassVar[bool] = True
    """Whether an actor takes one caller's calls in the order in which they were begun."""

    @abstractmethod
    def start(self, workers: int) -> None:
        """Start `workers` worker processes with one slot each."""

    @abstractmethod
    def stop(self) -> None:
        """End what `start` began."""

    @abstractmethod
    def submit_each(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Ref]:
        """Submit one task for each tuple of `arguments`; refs among them arrive as their values."""

    @abstractmethod
    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """Wait for all `refs` and return their values in order."""

    def put(self, value: Any) -> Ref:
        """Store a value for tasks to read."""
        raise NotImplementedError

    def create_actor(self, cls: type[Any]) -> Callable[[], Ref]:
        """Create an actor of `cls`; what is returned begins one call of its method `increment`."""
        raise NotImplementedError
