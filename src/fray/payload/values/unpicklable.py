"""Which part of a value can't be pickled, or is too large, found by pickling parts: users read the path.

It only helps an error or a warning that there is already: nothing here may fail, nor run where a value was
pickled and is small.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping

from fray.payload.values.pickling import NotPicklableError, pickle_value
from fray.payload.values.texts import cut, text_of

__all__ = [
    "LARGE_CAPTURES",
    "find_largest",
    "find_unpicklable_part",
    "find_unpicklable_part_among",
    "warn_of_captures",
]

MOST_TRIALS = 100
"""Parts of a value that are pickled to find the one that can't be, or the largest ones."""
LARGE_CAPTURES = 10_000_000
"""Bytes that a function may bring along without a warning."""


def find_unpicklable_part(value: object, root: str, error: Exception) -> tuple[str, str]:
    """Return the path to the innermost part that can't be pickled, and what it is."""
    try:
        path, value = _innermost(value, root)
    except Exception:  # noqa: BLE001 - the value's own code runs; the path only helps
        path = root
    kind = type(value)
    return path, f"it is a {kind.__module__}.{kind.__qualname__} ({cut(text_of(error), 1000)})"


def find_unpicklable_part_among(parts: Iterable[tuple[str, object]], error: Exception) -> tuple[str, str]:
    """Return the same for several values, each with its path; the path is empty if all can be pickled."""
    for root, part in parts:
        if not _can_pickle(part):
            return find_unpicklable_part(part, root, error)
    return "", cut(text_of(error), 1000)


def find_largest(parts: Iterable[tuple[str, object]], count: int = 3) -> tuple[tuple[str, int], ...]:
    """Return the paths to the parts with the largest pickles, and their bytes, largest first.

    What is small beside the largest isn't named. A part that mostly is one part of itself gives way to that.
    """
    trials = iter(range(MOST_TRIALS))
    sizes = _sizes(parts, trials)
    largest = []
    for size, path, found in sorted(sizes, key=lambda each: each[0], reverse=True)[:count]:
        within = (size, path, found)
        while inner := _sizes(((within[1] + step, part) for step, part in _parts_of(within[2])), trials):
            most = max(inner, key=lambda each: each[0])
            if most[0] * 2 <= size:
                break
            within = most
        largest.append((within[1], within[0]))
    return tuple(each for each in largest if each[1] * 20 >= largest[0][1])


def warn_of_captures(function: object, name: str, *, seen_late: bool = False) -> None:
    """Warn with the names of what a function captures if that takes more than `LARGE_CAPTURES`.

    Also for less if changes in it are `seen_late`, which the warning says then. Call it only for a function
    that may: it is pickled again, whole and in parts.
    """
    whole = _sizes([(name, function)], iter(range(1)))
    if not whole or (whole[0][0] <= LARGE_CAPTURES and not seen_late):
        return
    largest = find_largest((name + step, part) for step, part in _parts_of(function))
    parts = ", ".join(f"{path} ({size / 1e6:.1f} MB)" for path, size in largest)
    warnings.warn(
        f"{name} captures {whole[0][0] / 1e6:.1f} MB, which are sent with it: {parts or 'its code'}. "
        f"{'Later tasks may have old values of what changes in place. ' if seen_late else ''}"
        "Pass large values as arguments, as refs of `ctx.put`, or read them where it runs.",
        stacklevel=_count_own_frames(),
    )


def _count_own_frames() -> int:
    """Return the stack level of the line outside of Fray that led here."""
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))
    own = itertools.takewhile(lambda frame: frame.f_globals.get("__name__", "").startswith("fray."), frames)
    return sum(1 for _ in own) + 1


def _sizes(parts: Iterable[tuple[str, object]], trials: Iterator[int]) -> list[tuple[int, str, object]]:
    """Return the bytes of parts as pickles, as far as they have one and there are trials left."""
    sizes = []
    for (path, part), _ in zip(parts, trials, strict=False):
        buffers = list[memoryview]()
        try:
            blob, _found = pickle_value(part, buffers)
        except NotPicklableError:
            continue
        sizes.append((len(blob) + sum(buffer.nbytes for buffer in buffers), path, part))
    return sizes


def _innermost(value: object, path: str) -> tuple[str, object]:
    trials = MOST_TRIALS
    while True:
        for step, part in _parts_of(value):
            trials -= 1
            if trials < 0:
                return path, value
            if not _can_pickle(part):
                path, value = path + step, part
                break
        else:
            return path, value


def _can_pickle(value: object) -> bool:
    try:
        pickle_value(value, [])
    except NotPicklableError:
        return False
    return True


def _parts_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a value is made of, each with the step that leads there."""
    if isinstance(value, Mapping):
        yield from ((f"[{cut(repr(key), 100)}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, types.FunctionType):
        known = inspect.getclosurevars(value)
        yield from ((f" -> {name}", part) for name, part in {**known.globals, **known.nonlocals}.items())
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            # A slot of a class is pickled as the class with its name: it is no part.
            if not isinstance(part, types.GetSetDescriptorType | types.MemberDescriptorType):
                yield f".{name}", part
