"""How refs of generators go to tasks in other processes: as the list of their items, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fray.job.calls import Call
from fray.job.engine import Engine
from fray.job.options import TaskOptions
from fray.job.refs import GeneratorFuture, ObjectRef

__all__ = ["list_generators", "list_items", "refuse_generator"]


def list_generators(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], listed: Callable[[GeneratorFuture[Any]], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with what `listed` makes of the refs of generators among them."""
    # By exact type: nothing derives from it, and a generator expression costs more than the encoding.
    if GeneratorFuture not in map(type, (*args, *kwargs.values())):
        return args, dict(kwargs)

    def given(part: Any) -> Any:
        return listed(part) if type(part) is GeneratorFuture else part

    return tuple(map(given, args)), {name: given(part) for name, part in kwargs.items()}


def list_items(engine: Engine, future: GeneratorFuture[Any]) -> ObjectRef[Any]:
    """Return the ref of the list of the items that `next` hasn't taken, once the generator has ended.

    The items don't pass this process. Raises what the generator raises.
    """
    items = tuple(future.gather(None))
    entry = engine.submit(Call(_as_list, items, {}), TaskOptions(name=future.name), streaming=False)
    return ObjectRef(engine, entry, future.name)


def refuse_generator(ref: ObjectRef[Any]) -> None:
    """Raise `TypeError` for the ref of a generator, which can't be pickled."""
    if isinstance(ref, GeneratorFuture):
        raise TypeError(
            "a generator's items are taken where it was submitted: pass on the refs that `next` gives"
        )


def _as_list(*items: Any) -> list[Any]:
    return list(items)
