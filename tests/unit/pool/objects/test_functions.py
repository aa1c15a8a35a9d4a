"""Functions are encoded once, by name where that is enough, and say what is missing where they are read."""

from __future__ import annotations

import _collections_abc
import functools
import gc
import importlib
import math
import sys
import threading
import types
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from fray.errors import CodeNotFoundError, SerializationError
from fray.payload.values import captures
from fray.payload.values.references import report_reference
from fray.runtime.pool.objects import functions
from fray.runtime.pool.objects.functions import decode_function, encode_function
from fray.runtime.pool.objects.values import decode, encode


def importable(x: int) -> int:
    return x + 1


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def __call__(self) -> int:
        return self.count


def adder(amount: object) -> object:
    def add(x: int) -> object:
        return x + amount  # type: ignore[operator]

    return add


@pytest.mark.parametrize("function", [importable, Counter, math.sqrt, len, str.upper])
def test_importable_functions_and_classes_go_by_name(function: object) -> None:
    encoded = encode_function(function)  # type: ignore[arg-type]
    assert decode_function(encoded.blob) is function
    assert len(encoded.blob) < 250
    assert len(encoded.id) == 16


def test_a_closure_goes_by_value() -> None:
    assert decode_function(encode_function(adder(5)).blob)(2) == 7


def test_a_closure_that_captures_much_warns_with_its_name() -> None:
    large = adder({"weights": bytes(11_000_000), "bias": 1})
    with pytest.warns(
        UserWarning, match=r"captures 11\.0 MB.*adder.<locals>.add -> amount\['weights'\] \(11"
    ):
        assert decode_function(encode_function(large).blob)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_function(large)
        encode_function(adder(bytes(9_000_000)))


def test_one_function_is_encoded_once_and_has_one_digest() -> None:
    function = adder(5)
    first = encode_function(function)
    assert encode_function(function) is first
    assert encode_function(adder(6)).id != first.id
    assert encode_function(importable).id == encode_function(importable).id


def test_a_digest_depends_only_on_what_is_encoded() -> None:
    one = encode_function(importable)
    functions._encoded_functions.clear()
    other = encode_function(importable)
    assert one is not other
    assert one == other


def test_functions_are_not_kept_alive() -> None:
    gc.collect()
    before = len(functions._encoded_functions)
    for amount in range(100):
        encode_function(adder(amount))
    gc.collect()
    assert len(functions._encoded_functions) <= before


def test_what_holds_state_is_encoded_as_it_is_each_time() -> None:
    counter = Counter(1)
    first = encode_function(counter)
    counter.count = 2
    assert decode_function(encode_function(counter).blob)() == 2
    assert decode_function(first.blob)() == 1
    assert decode_function(encode_function(counter.__call__).blob)() == 2
    assert decode_function(encode_function(functools.partial(importable, 4)).blob)() == 5


CAPTURING = """
import abc, functools, types
threshold = 1
bound = 7
labels = corners = 1
options = {"a": [1]}
class Kind(type):
    def label(cls):
        return labels
class Shape(metaclass=Kind):
    def corners(self):
        return corners
class Box(Shape):
    __version__ = 1
    __sizes__ = [1]
    size = 1
    weights = bytearray(b"1")
    def area(self):
        return self.size * threshold
class Tall(Box):
    pass
class Field:
    def __init__(self, value):
        self.value = value
    def __get__(self, instance, owner):
        return self.value
class Model:
    field = Field(1)
    pick = staticmethod(min)
    twice = functools.partialmethod(lambda self, value: value, 1)
wrapped_rate = 1
def wrapping(function):
    @functools.wraps(function)
    def call():
        return wrapped_rate * function()
    return call
@wrapping
def wrapped():
    return 5
class Upper:
    clean = str.upper
table = {"op": lambda value: value}
side, other = types.ModuleType("side"), types.ModuleType("other")
side.rate, side.itself = 1, side
exec('factor = 2; double = lambda value: value * factor', vars(other))
sides = [other]
class Sized(abc.ABC):
    pass
class Low:
    rank = 1
class High:
    rank = 2
class Ranked(Low):
    'As ranked.'
def scale(value=None):
    return value
def inner():
    class Local:
        limit = bound
        late = "later" in globals() and later
    seen = Box.weights, Box.label(), Box().corners(), outer.factor, hasattr(outer, "new")
    seen += hasattr(Box, "new"), Tall.size, Model.field, Model.pick([3, 5]), Model().twice(), scale(*[1])
    seen += Ranked.rank, Ranked.__doc__, scale.__defaults__, wrapped(), Upper.clean("aB"), table["op"](1)
    seen += Box.__version__, Box.__sizes__, side.rate, sides[0].double(2), isinstance(1, Sized)
    return seen, threshold, options["a"], Box().area(), Local.limit, Local.late
def outer():
    return inner()
outer.factor = 3
def recursive(n):
    return recursive(n - 1) if n else threshold
"""


@pytest.mark.parametrize(
    "change",
    [
        "threshold = 2",
        "threshold += 0.5",
        "bound = 8",
        "labels = 2",
        "corners = 2",
        "later = 4",
        "outer.factor = 4",
        "outer.new = 5",
        "options['a'].append(2)",
        "options = {'a': [3]}",
        "Box.size = 7",
        "Box.weights[0] = 50",
        "inner = lambda: (9, [9], 9)",
        "del threshold",
        "Box.new = 8",
        "Box.new = property(lambda self: 8)",
        "Tall.size = 8",
        "Kind.new = lambda cls: 8",
        "inner.__code__ = (lambda: 10).__code__",
        "outer.__code__ = (lambda: 11).__code__",
        "Shape.corners.__code__ = (lambda self: 12).__code__",
        "Model.field = Field(13)",
        "Model.pick = staticmethod(max); Model.pick = staticmethod(sum)",
        "Model.twice = functools.partialmethod(lambda self, value: value, 15)",
        "scale.__defaults__ = (16,)",
        "Ranked.__bases__ = (High,)",
        "Ranked.__doc__ = 'otherwise'",
        "inner = None",
        "wrapped_rate = 2",
        "Upper.clean = str.lower",
        "table['op'] = lambda value: value + 1",
        "Box.__version__ = 2",
        "Box.__sizes__ = (2,)",
        "Box.__sizes__.append(2)",
        "side.rate = 17",
        "side.new = 18",
        "other.double = lambda value: 19",
        "other.factor = 20",
        "Sized.register(int)",
    ],
)
def test_a_function_is_encoded_anew_when_what_it_has_captured_has_changed(change: str) -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(CAPTURING, script)
    outer = script["outer"]
    first = encode_function(outer)
    assert encode_function(outer) is first
    exec(change, script)
    now = encode_function(outer)
    assert now.id != first.id
    assert encode_function(outer) is now
    if "del" not in change and "inner = None" not in change:
        assert repr(decode_function(now.blob)()) == repr(outer())


class LazyModule(types.ModuleType):
    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("json",)


def test_modules_that_say_how_they_are_pickled_or_go_by_another_name_are_left_alone() -> None:
    lazy, script = LazyModule("lazy"), {"__name__": "__main__", "lock": threading.Lock()}
    script |= {"lazy": lazy, "other": _collections_abc, "main": sys.modules["__main__"]}
    exec("def read(): return lazy.dumps([1]), isinstance([], other.Sized), main.__name__", script)
    function: Any = script["read"]
    assert decode_function(encode_function(function).blob)() == ("[1]", True, "__main__")


INSTANCES = """
price = 1
class Item:
    @property
    def price(self):
        return price
shelf = [{"first": Item()}]
def total():
    return sum(each["first"].price for each in shelf)
"""


def test_what_the_class_of_a_captured_instance_reads_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)
    exec(INSTANCES, vars(script))
    first = encode_function(script.total)
    assert encode_function(script.total) is first
    script.price = 2  # type: ignore[attr-defined]
    assert encode_function(script.total).id != first.id


def test_numbers_that_are_equal_and_of_other_types_are_told_apart() -> None:
    value: object = None

    def read() -> object:
        return value

    for value in (1, 1.0, 1, True, 1, False, 0, -0.0, 0.0, 0):
        assert repr(decode_function(encode_function(read).blob)()) == repr(value)


def test_a_cell_that_changed_and_a_function_that_calls_itself() -> None:
    count = 0

    def bump() -> None:
        nonlocal count
        count += 1

    def read() -> int:
        return count

    first = encode_function(read)
    bump()
    assert decode_function(first.blob)() == 0
    assert decode_function(encode_function(read).blob)() == 1
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(CAPTURING, script)
    gone = weakref.ref(script["recursive"])
    encode_function(script["recursive"])
    script.clear()
    gc.collect()
    assert gone() is None


def test_large_captured_values_are_looked_at_now_and_then_and_late_changes_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(captures, "CHEAP_SECONDS", -1.0)
    now = 100.0
    monkeypatch.setattr(captures.time, "monotonic", lambda: now)
    large = {"a": 1}

    def read() -> int:
        return large["a"]

    with pytest.warns(UserWarning, match=r"read -> large .*may have old values.*ctx\.put"):
        first = encode_function(read)
    large["a"] = 2
    assert encode_function(read) is first
    now += 3600
    with pytest.warns() as told:
        assert decode_function(encode_function(read).blob)() == 2
    assert "read has captured large values that have changed" in str(told[0].message)


def test_captured_values_of_some_megabytes_are_as_they_are_at_each_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # How long a comparison takes is up to the machine; within the limit it is made each time.
    monkeypatch.setattr(captures, "CHEAP_SECONDS", 60.0)
    numbers, weights, blank = list(range(50_000)), np.zeros(200_000), bytearray(1_000_000)

    def read() -> tuple[int, float, int]:
        return numbers[7], float(weights[7]), blank[7]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in range(3):
            numbers[7] = weights[7] = blank[7] = value
            assert decode_function(encode_function(read).blob)() == (value, value, value)


def test_references_in_a_closure_are_told() -> None:
    class Ref:
        def __reduce__(self) -> tuple[object, ...]:
            report_reference(31)
            return object, ()

    assert encode_function(adder(Ref())).contained == (31,)


def test_what_is_missing_here_is_told() -> None:
    blob = encode_function(importable).blob
    with pytest.raises(CodeNotFoundError) as raised:
        decode_function(blob.replace(b"importable", b"impartable"))
    assert "impartable" in raised.value.problem
    assert "impartable" in raised.value.what
    with pytest.raises(CodeNotFoundError, match="No module named 'test"):
        decode_function(blob.replace(b"tests.unit", b"testx.unit").replace(b"tests/unit", b"testx/unit"))


def test_a_function_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(SerializationError) as raised:
        encode_function(adder(threading.Lock()))
    assert "adder.<locals>.add" in raised.value.what
    assert raised.value.path == "adder.<locals>.add -> amount"


def test_a_function_with_a_cache_goes_by_value_and_may_call_itself() -> None:
    source = (
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib = lru_cache(maxsize=3)(fib)"
    )
    script: dict[str, Any] = {"__name__": "__main__", "lru_cache": functools.lru_cache}
    exec(source, script)
    fib = script["fib"]
    made: Any = decode_function(encode_function(fib).blob)
    assert made is not fib
    assert made(30) == 832040
    assert made.cache_parameters() == {"maxsize": 3, "typed": False}
    assert (made.__name__, made.cache_info().currsize) == ("fib", 3)
    assert fib.cache_info().currsize == 0
    inner = decode(encode([fib, fib]).to_bytes())
    assert inner[0] is inner[1]
    assert inner[0](10) == 55


DISPATCHING = """
class Box(list):
    pass

@singledispatch
def measure(value):
    return 1

@measure.register
def _(value: list):
    return sum(map(measure, value))

@measure.register(Box)
def _(value):
    return 100 + len(value)
"""


def test_a_dispatching_function_of_the_main_script_goes_by_value() -> None:
    """It calls itself, has a class of the script among its own, and was called: so it has a memory."""
    script: dict[str, Any] = {"__name__": "__main__", "singledispatch": functools.singledispatch}
    exec(DISPATCHING, script)
    measure = script["measure"]
    assert measure([1, 2, "a", [5]]) == 4
    made, box = decode(encode([measure, script["Box"]([7])]).to_bytes())
    assert made is not measure
    assert (made([1, 2, "a", [5]]), made(box)) == (4, 101)
    assert (made.__name__, made.dispatch(bool).__name__) == ("measure", "measure")
    with pytest.raises(TypeError, match="measure requires at least 1 positional argument"):
        made()
    assert decode_function(encode_function(measure).blob)((1, 2)) == 1


def test_an_importable_dispatching_function_goes_by_name() -> None:
    assert decode_function(encode_function(dispatching_importable).blob) is dispatching_importable


@functools.singledispatch
def dispatching_importable(x: int) -> int:
    return x


def test_an_importable_function_with_a_cache_goes_by_name() -> None:
    assert decode_function(encode_function(cached_importable).blob) is cached_importable


@functools.cache
def cached_importable(x: int) -> int:
    return x


CACHING = """
class Circle:
    def __init__(self, radius):
        self.radius = radius

    @cached_property
    def area(self):
        "The surface."
        return factor * self.radius**2 + (Circle(0).area if self.radius else 0)

    @lru_cache
    def twice(self):
        return 2 * factor
"""


def test_a_class_with_cached_properties_and_methods_goes_by_value() -> None:
    """Up to Python 3.11, a cached property has a lock, which can't be pickled."""
    script: dict[str, Any] = {
        "__name__": "__main__",
        "factor": 3,
        "cached_property": functools.cached_property,
        "lru_cache": functools.lru_cache,
    }
    exec(CACHING, script)
    circle = script["Circle"](2)
    assert circle.area == 12
    before = encode_function(script["Circle"])
    assert encode_function(script["Circle"]) is before
    script["factor"] = 5  # which only the property and the method read
    after = encode_function(script["Circle"])
    assert after.id != before.id
    # Only now: what cloudpickle reads in the process that wrote it changes the class itself.
    made: Any = decode_function(after.blob)
    assert (made(2).area, made(2).twice(), made.area.__doc__) == (20, 10, "The surface.")
    assert decode(encode(circle).to_bytes()).area == 12
