"""What a measurement asks of an engine. No engine is imported here.

The interface is thin on purpose: every engine is driven in the form that its own documentation gives, and
what lies between it and the measurement is one Python call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    has_generators: ClassVar[bool] = False
    """Whether the items of a task are there one by one, as refs."""
    has_wait: ClassVar[bool] = True
    has_map: ClassVar[bool] = False
    has_hosts: ClassVar[bool] = False
    """Whether further hosts can be had on one machine."""
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

    def create_actor(self, cls: type[Any], *, options: bool = False) -> Callable[[], Ref]:
        """Create an actor of `cls`; what is returned begins one call of its method `increment`.

        With `options`, each call has some of its own.
        """
        raise NotImplementedError

    def submit_generators(
        self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
    ) -> list[Iterator[Ref]]:
        """Submit one generator task for each tuple of `arguments`; give the refs of its items."""
        raise NotImplementedError

    def wait_one(self, refs: Sequence[Ref]) -> tuple[Ref, Sequence[Ref]]:
        """Wait until a ref is ready, or a generator has an item or its end; return it and the others."""
        raise NotImplementedError

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """Return the function of each item, many of them in one task."""
        raise NotImplementedError

    def add_hosts(self, count: int) -> None:
        """Let more hosts join, of one worker each and with stores of their own, all on this machine."""
        raise NotImplementedError

    def submit_on(self, host: int, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Submit a task that runs on one of the hosts that were added."""
        raise NotImplementedError
