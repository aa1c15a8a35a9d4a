"""`put` and `get`: what comes back, and what passes through."""

from __future__ import annotations

import pickle

import pytest

from fray.errors import ObjectLostError
from fray.job import JobContext, ObjectRef, create_job_ctx
from fray.job.traits import Traits


def test_a_value_that_was_put_comes_back(ctx: JobContext) -> None:
    ref = ctx.put({"data": [1, 2, 3]})
    assert isinstance(ref, ObjectRef)
    assert ctx.get(ref) == {"data": [1, 2, 3]}
    assert ctx.get(ref) == {"data": [1, 2, 3]}


def test_values_are_shared_or_copied(ctx: JobContext, traits: Traits) -> None:
    value = {"data": [1]}
    assert (ctx.get(ctx.put(value)) is value) == traits.shared_memory
    assert (ctx.get(ctx.run(id, value)) == id(value)) == traits.shared_memory


def test_none_and_a_ref_as_a_value_come_back(ctx: JobContext) -> None:
    inner = ctx.put(1)
    assert ctx.get(ctx.put(None)) is None
    assert ctx.get(ctx.put(inner)) == inner


def test_anything_but_refs_passes_through(ctx: JobContext) -> None:
    for value in (5, "text", None, [1, 2], [], {"ref": ctx.put(1)}, (ctx.put(1),)):
        assert ctx.get(value) is value


def test_a_list_with_a_ref_is_resolved_in_order(ctx: JobContext) -> None:
    refs = [ctx.run(pow, 2, n) for n in range(20)]
    assert ctx.get(refs) == [2**n for n in range(20)]
    assert ctx.get([7, refs[3], "x"]) == [7, 8, "x"]


def test_only_the_list_itself_is_resolved(ctx: JobContext) -> None:
    ref = ctx.put(1)
    assert ctx.get([[ref], ref]) == [[ref], 1]
    assert ctx.get(ctx.put([ref])) == [ref]


def test_refs_are_hashable_small_and_survive_pickling(ctx: JobContext) -> None:
    one, two = ctx.put("one"), ctx.run(str, 2)
    assert len({one, two, one}) == 2
    assert one != two
    assert one != one.id
    assert len(repr(one)) < 80
    for ref in (one, two):
        data = pickle.dumps(ref)
        assert len(data) < 500
        again = pickle.loads(data)
        assert again == ref
        assert hash(again) == hash(ref)
        assert ctx.get(again) == ctx.get(ref)


@pytest.mark.traits(own_processes=True)
def test_a_ref_of_another_context_is_refused(ctx: JobContext) -> None:
    with create_job_ctx("sync") as other:
        with pytest.raises(ObjectLostError, match="another context"):
            ctx.get(other.put(1))
        with pytest.raises(ObjectLostError, match="another context"):
            other.get(ctx.put(1))
        with pytest.raises(ObjectLostError, match="another context"):
            ctx.run(str, other.put(1))
