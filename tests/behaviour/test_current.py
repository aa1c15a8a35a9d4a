"""Which context code gets: in tasks, by default, by name of its kind, and after pickling."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from fray.errors import ContextUnavailableError, PoolClosedError, UnknownContextError
from fray.job import (
    JobContext,
    clear_job_context,
    create_context,
    create_job_ctx,
    fray_default_job_ctx,
    fray_job_ctx,
    get_default_job_ctx,
    get_job_context,
    set_job_context,
)


def test_in_a_task_the_context_that_runs_it_is_current(ctx: JobContext) -> None:
    def both_levels() -> tuple[JobContext, JobContext]:
        here = get_job_context()
        return here, here.get(here.run(get_default_job_ctx))

    assert get_job_context() is not ctx
    outer, inner = ctx.get(ctx.run(both_levels))
    assert outer is ctx
    assert inner is ctx


def test_a_generator_sees_its_context(ctx: JobContext) -> None:
    def contexts() -> object:
        yield get_job_context()
        yield get_job_context()

    assert [ctx.get(item) is ctx for item in ctx.run(contexts)] == [True, True]  # type: ignore[attr-defined]


def test_a_pickled_context_comes_back_as_itself(ctx: JobContext) -> None:
    assert pickle.loads(pickle.dumps(ctx)) is ctx
    assert ctx.get(ctx.run(lambda given: given is get_job_context(), ctx))


def test_in_another_process_a_context_is_that_process_own_and_its_values_are_not_there(
    ctx: JobContext,
) -> None:
    actor = ctx.create_actor(list)
    data = base64.b64encode(pickle.dumps((ctx, pickle.dumps(ctx.put(1)), pickle.dumps(actor))))
    program = f"""
import base64, pickle
from fray.errors import ActorNotFoundError, ObjectLostError
from fray.job import get_job_context
ctx, ref, actor = pickle.loads(base64.b64decode({data!r}))
assert ctx is get_job_context()
assert ctx.get(ctx.run(len, "abc")) == 3
try:
    pickle.loads(ref)
except ObjectLostError:
    print("lost")
try:
    pickle.loads(actor)
except ActorNotFoundError:
    print("not found")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("lost\nnot found\n", "")


def test_set_and_clear(ctx: JobContext) -> None:
    before = get_job_context()
    set_job_context(ctx)
    assert get_job_context() is get_default_job_ctx() is ctx
    clear_job_context()
    assert get_job_context() is before


def test_a_default_for_a_block_ends_with_it(make_ctx: Callable[..., JobContext]) -> None:
    before, outer, inner = get_job_context(), make_ctx(), make_ctx(1)  # two pools: one is joined once
    with fray_default_job_ctx(outer) as given:
        assert given is outer
        with pytest.raises(KeyError, match="True"), fray_default_job_ctx(inner):
            raise KeyError(get_job_context() is inner)
        assert get_job_context() is outer
    assert get_job_context() is before
    assert outer.get(outer.run(len, "abc")) == 3  # it was not shut down


def test_a_process_has_one_default_context_until_it_is_shut_down() -> None:
    first = get_job_context()
    seen: list[JobContext] = []
    thread = threading.Thread(target=lambda: seen.append(get_default_job_ctx()))
    thread.start()
    thread.join()
    assert seen == [first]
    assert "threadpool" in repr(first)
    first.shutdown()
    with pytest.raises(PoolClosedError):
        first.run(len, "abc")
    second = get_job_context()
    assert second is not first
    assert second.get(second.run(len, "abc")) == 3


@pytest.mark.parametrize("make", [create_job_ctx, create_context, fray_job_ctx])
def test_contexts_by_the_name_of_their_kind(
    make: Callable[..., JobContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, expected in (("sync", "sync"), ("threadpool", "threadpool"), ("auto", "threadpool")):
        with make(kind) as ctx:
            assert expected in repr(ctx)
    with make("threadpool", max_workers=3) as ctx:
        assert ctx.stats().workers == 3
    with pytest.raises(ValueError, match=r"Unknown context type 'spark'\n.*; legal: auto, sync") as caught:
        make("spark")
    assert isinstance(caught.value, UnknownContextError)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    for kind in ("ray", "dask"):
        with pytest.raises(ImportError, match=f"context type '{kind}' is not available") as missing:
            make(kind, memory=2**30)
        assert isinstance(missing.value, ContextUnavailableError)
