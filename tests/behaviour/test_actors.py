"""Actors: order, concurrency, names, handles, and every spelling that makes one."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.command import await_condition
from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    InvalidOptionError,
    NotInActorError,
    TaskCancelledError,
)
from fray.job import (
    ActorHandle,
    ActorOptions,
    JobContext,
    Lifetime,
    MemberState,
    current_actor,
    get_job_context,
)
from tests.behaviour.actors_of_jobs import KindTraits
from tests.behaviour.gates import Gate, Signal, append, lines


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def fail(self) -> None:
        self.value += 1000
        raise BufferError("meant to fail")

    def items(self) -> Iterator[int]:
        yield from range(self.value)

    async def add_later(self, amount: int) -> int:
        await asyncio.sleep(0)
        return self.add(amount)

    def context_is_current(self) -> JobContext:
        return get_job_context()

    def _hidden(self) -> None:
        raise AssertionError


class Noted:
    """Writes a line for each construction."""

    def __init__(self, path: Path) -> None:
        append(path, "constructed")

    def ready(self) -> bool:
        return True


class Meeting:
    """Knows how many calls run at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.both = threading.Barrier(2)
        self.event = asyncio.Event()

    def visit(self) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        get_job_context().get(get_job_context().run(len, "gives way"))
        with self.lock:
            self.inside -= 1
        return self.most

    def meet(self) -> int:
        return self.both.wait()

    async def wait_for_event(self) -> str:
        await self.event.wait()
        return "came"

    async def set_event(self) -> None:
        self.event.set()

    async def wait_in_vain(self, signal: Signal, story: Path) -> None:
        signal.send()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            append(story, "ended")

    async def yield_in_vain(self, signal: Signal, story: Path) -> AsyncIterator[int]:
        for number in range(100):
            yield number
        await self.wait_in_vain(signal, story)

    async def read_story(self, story: Path) -> list[str]:
        return lines(story)


class OwnNames:
    def __init__(self, args: Any, options: Any) -> None:
        self.given = (args, options)

    def read(self) -> Any:
        return self.given


class Failing:
    def __init__(self) -> None:
        raise ArithmeticError("no such actor")

    def method(self) -> None:
        raise AssertionError


def add_through(handle: ActorHandle, times: int) -> int:
    ctx = get_job_context()
    return max(ctx.get([handle.add() for _ in range(times)]))


def create_and_read(path: Path) -> bool:
    ctx = get_job_context()
    handle = ctx.create_actor(Noted, path, name="one", get_if_exists=True)
    return bool(ctx.get(handle.ready()))


def test_calls_run_in_their_order(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter, 10)
    refs = [counter.add(n) if n % 2 else counter.add.remote(amount=n) for n in range(200)]
    assert ctx.get(refs) == [10 + sum(range(n + 1)) for n in range(200)]


def test_a_call_waits_for_its_arguments_in_its_turn(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter, ctx.run(len, "abc"))
    first = counter.add(ctx.run(sum, [1, 2, 3]))
    second = counter.add(first)
    assert ctx.get([first, second]) == [9, 18]


@pytest.mark.traits(concurrent=True, fray_actors=False)  # those read the ref before they send the call
def test_a_later_call_never_overtakes_one_that_waits(ctx: JobContext, gate: Gate) -> None:
    def number_after(gate: Gate) -> int:
        gate.pass_through()
        return 5

    counter = ctx.create_actor(Counter)
    first = counter.add(ctx.run(number_after, gate))
    second = counter.add(1)
    assert ctx.wait([second], timeout=0.02) == ([], [second])
    gate.open()
    assert ctx.get([first, second]) == [5, 6]


def test_an_exception_leaves_the_actor_and_its_state(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter)
    with pytest.raises(BufferError, match="meant to fail"):
        ctx.get(counter.fail())
    assert ctx.get(counter.add()) == 1001


def test_who_reads_a_generator_method_may_call_its_actor_meanwhile(ctx: JobContext) -> None:
    """Also where the actor runs one call at a time, and would wait for its reader."""
    actor = ctx.create_actor(Pages)
    read = []
    for page in actor.pages(50):
        read.append(ctx.get(page)[:1])
        if len(read) == 1:
            noted = actor.note("first")
    assert read == [bytes([number]) for number in range(50)]
    assert ctx.get(noted) == ["first"]


class Pages:
    def __init__(self) -> None:
        self.noted: list[str] = []

    def pages(self, count: int) -> Iterator[bytes]:
        for number in range(count):
            yield bytes([number]) * 2000

    def note(self, text: str) -> list[str]:
        self.noted.append(text)
        return self.noted


def test_async_and_generator_methods(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter, 100)
    assert ctx.get([counter.add_later(n) for n in (1, 2, 3)]) == [101, 103, 106]
    items = counter.items()
    assert ctx.get(counter.add()) == 107  # nobody has read the items yet: still no deadlock
    assert [ctx.get(item) for item in items] in (list(range(106)), list(range(107)))


def test_names_that_are_no_methods_are_attribute_errors(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter)
    for name in ("_hidden", "__len__", "nonsense", "value"):
        with pytest.raises(AttributeError):
            getattr(counter, name)


def test_unnamed_actors_are_independent(ctx: JobContext) -> None:
    one, two = ctx.create_actor(Counter), ctx.create_actor(Counter)
    assert one != two
    assert ctx.get([one.add(), one.add(), two.add()]) == [1, 2, 1]


def test_an_actor_is_found_by_its_name(ctx: JobContext) -> None:
    one = ctx.create_actor(Counter, 5, name="counter")
    two = ctx.create_actor(Counter, 99, name="counter", get_if_exists=True)
    assert one == two
    assert ctx.get([one.add(), two.add()]) == [6, 7]
    with pytest.raises(ActorExistsError, match="Actor 'counter' already exists"):
        ctx.create_actor(Counter, name="counter")
    with pytest.raises(ValueError, match="already exists"):
        ctx.create_actor(Counter, options=ActorOptions(name="counter"))


class Other:
    """Has the name of one of the Counter's methods for another kind of it, and lacks the rest."""

    def items(self) -> None:
        raise AssertionError

    def only_here(self) -> None:
        raise AssertionError


def find_and_add() -> list[int]:
    handle = get_job_context().create_actor(Other, name="counter", get_if_exists=True)
    added: int = get_job_context().get(handle.add())
    return [added, *get_job_context().get(handle.items())]


def test_a_handle_of_an_actor_that_was_found_has_the_actors_methods(
    ctx: JobContext, traits: KindTraits
) -> None:
    """Whatever class it was asked for with."""
    one = ctx.create_actor(Counter, 2, name="counter")
    two = ctx.create_actor(Other, name="counter", get_if_exists=True)
    assert one == two
    assert traits.fray_actors or "Counter" in repr(two)  # those are asked by the first call
    assert ctx.get(two.add()) == 3
    assert "Counter" in repr(two)
    assert [ctx.get(item) for item in two.items()] == [0, 1, 2]
    with pytest.raises(AttributeError):
        two.only_here  # noqa: B018
    assert ctx.get(ctx.run(find_and_add)) == [4, 0, 1, 2, 3]


def test_of_racing_creators_one_creates(ctx: JobContext, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert ctx.get([ctx.run(create_and_read, made) for _ in range(20)]) == [True] * 20
    assert lines(made) == ["constructed"]


def test_who_asks_again_in_the_creators_process_does_not_end_it(ctx: JobContext, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert [ctx.get(ctx.run(create_and_read, made)) for _ in range(3)] == [True] * 3
    assert lines(made) == ["constructed"]


def test_a_failing_constructor_is_heard_and_frees_the_name(ctx: JobContext, traits: KindTraits) -> None:
    with pytest.raises(traits.raised_in_constructor(ArithmeticError), match="no such actor"):
        ctx.get(ctx.create_actor(Failing, name="failing").method())
    handle = ctx.create_actor(Counter, name="failing", get_if_exists=True)
    assert ctx.get(handle.add()) == 1


@pytest.mark.traits(shared_memory=True)
def test_an_actor_that_creates_its_own_name_is_refused(ctx: JobContext) -> None:
    class Recursive:
        def __init__(self) -> None:
            get_job_context().create_actor(Recursive, name="recursive", get_if_exists=True)

    with pytest.raises(ActorExistsError):
        ctx.create_actor(Recursive, name="recursive")


def test_handles_travel(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter)
    assert ctx.get(ctx.run(add_through, counter, 3)) == 3
    again = pickle.loads(pickle.dumps(counter))
    assert again == counter
    assert hash(again) == hash(counter)
    assert ctx.get(again.add()) == 4
    assert ctx.get(ctx.get(ctx.put([counter]))[0].add()) == 5


def test_the_context_is_current_in_a_method(ctx: JobContext) -> None:
    counter = ctx.create_actor(Counter)
    assert ctx.get(counter.context_is_current()) is ctx


@pytest.mark.parametrize("most", [1, 3])
def test_so_many_calls_run_at_once_and_no_more(ctx: JobContext, most: int) -> None:
    meeting = ctx.create_actor(Meeting, options=ActorOptions(max_concurrency=most))
    assert max(ctx.get([meeting.visit() for _ in range(30)])) <= most


@pytest.mark.traits(concurrent=True)
def test_concurrent_calls_meet(ctx: JobContext) -> None:
    meeting = ctx.create_actor(Meeting, options=ActorOptions(max_concurrency=2))
    assert sorted(ctx.get([meeting.meet(), meeting.meet()])) == [0, 1]
    came = meeting.wait_for_event()
    assert ctx.wait([came], timeout=0.02) == ([], [came])
    ctx.get(meeting.set_event())
    assert ctx.get(came) == "came"


@pytest.mark.traits(concurrent=True)
@pytest.mark.parametrize("method", ["wait_in_vain", "yield_in_vain"])
def test_a_cancelled_async_call_ends_and_gives_its_place_to_the_next(
    ctx: JobContext, signal: Signal, tmp_path: Path, method: str
) -> None:
    """Not before it has ended: the calls of such an actor exclude each other."""
    meeting = ctx.create_actor(Meeting, options=ActorOptions(max_concurrency=1))
    story = tmp_path / "story"
    call = getattr(meeting, method)(signal, story)
    next_call = meeting.read_story(story)
    signal.wait()
    ctx.cancel(call)
    with pytest.raises(TaskCancelledError):
        ctx.get(call)
    assert ctx.get(next_call, timeout=60) == ["ended"]


@pytest.mark.traits(concurrent=True)
def test_an_actor_that_is_busy_holds_up_nobody_else(
    make_ctx: Callable[..., JobContext], gate: Gate, signal: Signal
) -> None:
    class Blocking:
        def block(self, gate: Gate, signal: Signal) -> None:
            signal.send()
            gate.pass_through()

    ctx = make_ctx(1)
    busy = ctx.create_actor(Blocking, num_cpus=0).block(gate, signal)
    signal.wait()
    assert ctx.get(ctx.run(len, "abc")) == 3
    assert ctx.get(ctx.create_actor(Counter, num_cpus=0).add()) == 1
    gate.open()
    assert ctx.get(busy) is None


def test_every_spelling_of_create_actor(ctx: JobContext) -> None:
    options = ActorOptions(resources={"CPU": 0, "head_node": 0.0001}, lifetime=Lifetime.DETACHED)
    handles = [
        ctx.create_actor(Counter, 5),
        ctx.create_actor(Counter, start=5),
        ctx.create_actor(Counter, args=(5,)),
        ctx.create_actor(Counter, kwargs={"start": 5}),
        ctx.create_actor(Counter, 5, preemptible=False, num_cpus=0, lifetime="non_detached"),
        ctx.create_actor(Counter, 5, lifetime="detached", name="detached"),
    ]
    assert [ctx.get(handle.add()) for handle in handles] == [6] * 6
    own = ctx.create_actor(OwnNames, args=(1,), options=options)
    args, given = ctx.get(own.read())
    assert (args, given.lifetime) == ((1,), Lifetime.DETACHED)
    with pytest.raises(InvalidOptionError, match="lifetime"):
        ctx.create_actor(Counter, lifetime="eternal")
    with pytest.raises(InvalidOptionError, match="env"):
        ActorOptions(env={"A=B": "1"})
    with pytest.raises(InvalidOptionError, match="env\\['A'\\]"):
        ActorOptions(env={"A": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidOptionError, match="max_concurrency"):
        ActorOptions(max_concurrency=0)


class Seat:
    """A member of a group that knows its place; that of one index can't be constructed."""

    def __init__(self, broken: int) -> None:
        member = current_actor()
        if member.index == broken:
            raise BufferError(f"no seat {broken}")
        self.place = f"{member.group_name}/{member.index}"

    def where(self) -> str:
        return self.place

    def letters(self) -> Iterator[str]:
        yield from self.place


def test_members_of_a_group_know_their_index_and_end_together(ctx: JobContext) -> None:
    with pytest.raises(NotInActorError, match="no actor is being constructed"):
        current_actor()
    group = ctx.create_actor_group(Seat, -1, name="seats", count=3)
    ready = group.wait_ready()
    assert ready == list(group.handles)
    assert ctx.get([each.where.remote() for each in ready]) == ["seats/0", "seats/1", "seats/2"]
    assert (group.ready_count, group.is_done()) == (3, False)
    assert (group.discover_new(), group.discover_new()) == (ready, [])
    same = ctx.create_actor_group(Seat, -1, name="seats", count=3, get_if_exists=True)
    assert same.handles == group.handles
    assert same.wait_ready() == ready
    assert same.statuses() == group.statuses()
    assert ctx.get(ready[0].where.submit()) == "seats/0"
    assert ctx.get(ctx.get_actor("seats-1").where.remote()) == "seats/1"
    items = [ctx.get(item) for item in ready[2].letters.remote()]
    assert "".join(items) == "seats/2"
    with pytest.raises(ActorExistsError):
        ctx.create_actor_group(Seat, -1, name="seats", count=2)
    group.shutdown()
    group.shutdown()
    await_condition("all members have ended", group.is_done, timeout=60.0)
    with pytest.raises(ActorDiedError):
        group.wait_ready(1)
    assert ctx.create_actor_group(Seat, -1, name="seats", count=1).wait_ready()


class Closed:
    """Has no size any more."""

    def __sizeof__(self) -> int:
        raise BufferError("it is closed")

    def where(self) -> str:
        return "here"


def test_nobody_asks_an_actor_for_its_size(ctx: JobContext) -> None:
    group = ctx.create_actor_group(Closed, name="closed", count=1)
    (actor,) = group.wait_ready()
    assert ctx.get(actor.where.remote()) == "here"
    assert group.ready_count == 1


def test_a_member_that_cannot_be_constructed_is_named_where_it_is_needed(
    ctx: JobContext, traits: KindTraits
) -> None:
    try:
        group = ctx.create_actor_group(Seat, 1, name="rows", count=3)
    except BufferError:  # contexts that construct at once leave none behind
        for name in ("rows-0", "rows-1"):
            with pytest.raises(ActorNotFoundError):
                ctx.get_actor(name)
        return
    assert group.wait_ready(2) == [group.handles[0], group.handles[2]]
    with pytest.raises(traits.raised_in_constructor(BufferError), match="no seat 1"):
        group.wait_ready()
    assert group.statuses()[1] is MemberState.FAILED
