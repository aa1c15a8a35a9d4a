"""What an actor's own code can do with `current_actor()`: pass its handle on, fail, end, see it is to."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from e2e.cluster.command import await_condition
from fray.errors import ActorDiedError, ActorNotFoundError, InvalidOptionError, TaskError
from fray.job import ActorHandle, ActorOptions, JobContext, current_actor
from fray.job.traits import Feature
from tests.behaviour.actors_of_jobs import KindTraits
from tests.behaviour.gates import append, lines


class Register:
    """Whom it knows."""

    def __init__(self) -> None:
        self.known: list[ActorHandle[Replica]] = []

    def enter(self, handle: ActorHandle[Replica]) -> None:
        self.known.append(handle)

    def count(self) -> int:
        return len(self.known)

    def last(self) -> ActorHandle[Replica]:
        return self.known[-1]


class Replica:
    """Counts, and ends as it is told."""

    def __init__(self, path: Path | None = None, register: ActorHandle[Register] | None = None) -> None:
        self.member = current_actor()
        self.count = 0
        if register is not None:
            self.entered = register.enter.remote(self.member.handle)
        if path is not None:
            append(path, "constructed")
            stop = self.member.shutdown_event
            threading.Thread(target=lambda: stop.wait(60) and append(path, "asked"), daemon=True).start()

    def add(self) -> int:
        self.count += 1
        return self.count

    def total(self) -> int:
        return self.count

    def fail(self) -> str:
        self.member.fail(BufferError("out of lessons"))
        return "went on"

    def fail_with_text(self) -> None:
        self.member.fail("out of lessons")  # type: ignore[arg-type]

    def fail_elsewhere(self) -> str:
        thread = threading.Thread(target=self.member.fail, args=(BufferError("out of lessons"),))
        thread.start()
        thread.join()
        return "went on"

    def end(self) -> str:
        self.member.shutdown_event.set()
        return "done"


class Unready:
    def __init__(self) -> None:
        current_actor().fail(BufferError("no lessons at all"))


def test_what_is_no_exception_ends_no_member(ctx: JobContext) -> None:
    replica = ctx.create_actor(Replica, None, name="replica")
    with pytest.raises(InvalidOptionError, match="an exception, such as"):
        ctx.get(replica.fail_with_text.remote(), timeout=60)
    assert ctx.get(replica.add.remote(), timeout=60) == 1


def test_a_member_passes_its_own_handle_on_from_its_constructor(ctx: JobContext) -> None:
    register = ctx.create_actor(Register, name="register")
    group = ctx.create_actor_group(Replica, None, register, name="replicas", count=1)
    (replica,) = group.wait_ready(timeout=60.0)
    assert ctx.get(replica.add.remote(), timeout=60) == 1

    await_condition("it has entered itself", lambda: ctx.get(register.count.remote()) == 1, timeout=60.0)
    same = ctx.get(register.last.remote(), timeout=60)
    assert same == replica
    assert ctx.get(same.add.remote(), timeout=60) == 2


class Alone:
    """What it is, and its own handle."""

    def __init__(self) -> None:
        self.itself = current_actor()

    def where(self) -> str:
        return f"{self.itself.group_name}/{self.itself.index}"

    def handle(self) -> ActorHandle[Alone]:
        return self.itself.handle


def test_an_actor_of_no_group_learns_its_name_and_finds_itself(ctx: JobContext) -> None:
    named = ctx.create_actor(Alone, name="alone")
    where = ctx.get(named.where.remote(), timeout=60)
    assert where == "alone/0"
    same = ctx.get(named.handle.remote(), timeout=60)
    assert same == named
    assert ctx.get(same.where.remote(), timeout=60) == where


@pytest.mark.traits(fray_actors=False)
def test_one_without_a_name_has_that_of_its_class(ctx: JobContext) -> None:
    assert ctx.get(ctx.create_actor(Alone).where.remote(), timeout=60) == "Alone/0"


@pytest.mark.traits(shared_memory=False, fray_actors=False)
def test_one_without_a_name_does_not_find_itself_from_another_process(ctx: JobContext) -> None:
    with pytest.raises(ActorNotFoundError, match="Alone"):
        ctx.get(ctx.create_actor(Alone).handle.remote(), timeout=60)


@pytest.mark.needs(Feature.MAX_RESTARTS)
@pytest.mark.parametrize("how", ["fail", "fail_elsewhere"])
def test_one_that_fails_is_started_again_with_fresh_state_as_often_as_it_may_be(
    ctx: JobContext, traits: KindTraits, how: str
) -> None:
    options = ActorOptions(max_restarts=1)
    (replica,) = ctx.create_actor_group(Replica, name="replicas", count=1, options=options).handles
    assert [ctx.get(replica.add.remote(), timeout=60) for _ in range(2)] == [1, 2]
    with pytest.raises(ActorDiedError):
        ctx.get(getattr(replica, how).remote(), timeout=60)

    def is_fresh() -> bool:
        nonlocal replica
        if traits.fray_actors:  # whose handles stay with one start
            replica = ctx.get_actor("replicas-0")
        try:
            return bool(ctx.get(replica.total.remote(), timeout=60) == 0)
        except ActorDiedError:  # Ray has no place for calls while it starts an actor again
            return False

    await_condition("it was started again", is_fresh, timeout=60.0)
    with pytest.raises(ActorDiedError):
        ctx.get(getattr(replica, how).remote(), timeout=60)
    with pytest.raises(ActorDiedError):
        ctx.get(replica.add.remote(), timeout=60)


def test_one_that_fails_ends_where_it_may_not_be_started_again(ctx: JobContext, kind: str) -> None:
    group = ctx.create_actor_group(Replica, name="replicas", count=2)
    failing, other = group.wait_ready(timeout=60.0)
    with pytest.raises(ActorDiedError) as caught:
        ctx.get(failing.fail.remote(), timeout=60)
    # On Ray its process ends with it, and what it failed with is in the log.
    assert kind == "ray" or "it failed: BufferError: out of lessons" in str(caught.value)
    with pytest.raises(ActorDiedError):
        ctx.get(failing.add.remote(), timeout=60)
    assert ctx.get(other.add.remote(), timeout=60) == 1


def test_failing_in_the_constructor_is_as_if_that_had_raised_it(ctx: JobContext, traits: KindTraits) -> None:
    with pytest.raises(traits.raised_in_constructor(BufferError), match="no lessons at all"):
        ctx.create_actor_group(Unready, name="unready", count=1).wait_ready(timeout=60.0)


def test_one_that_sets_its_event_ends_for_good_after_its_call(ctx: JobContext) -> None:
    (replica,) = ctx.create_actor_group(Replica, name="replicas", count=1).handles
    with contextlib.suppress(ActorDiedError):  # where its process ends at once
        assert ctx.get(replica.end.remote(), timeout=60) == "done"

    def has_ended() -> bool:
        try:
            ctx.get(replica.add.remote(), timeout=60)
        except TaskError as error:
            return isinstance(error, ActorDiedError)
        return False

    await_condition("it has ended", has_ended, timeout=60.0)


@pytest.mark.traits(own_processes=False)
def test_it_is_told_when_it_is_killed(ctx: JobContext, tmp_path: Path) -> None:
    path = tmp_path / "events"
    (replica,) = ctx.create_actor_group(Replica, path, name="replicas", count=1).handles
    assert lines(path) == ["constructed"]
    ctx.kill(replica)
    await_condition("it was told", lambda: lines(path) == ["constructed", "asked"], timeout=60.0)
    with pytest.raises(ActorNotFoundError):
        ctx.get_actor("replicas-0")
