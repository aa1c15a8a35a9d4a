"""Actors that are ended by their users."""

from __future__ import annotations

import pytest

from fray.errors import ActorDiedError, ActorNotFoundError, InvalidOptionError, TaskTimeoutError
from fray.job import JobContext, get_job_context
from tests.behaviour.actors_of_jobs import KindTraits
from tests.behaviour.gates import Gate, Signal

PATIENCE = 120


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value

    def block(self, gate: Gate, signal: Signal) -> None:
        signal.send()
        gate.pass_through()

    def hold(self, gate: Gate) -> None:
        gate.pass_through()


def test_a_killed_actor_is_dead_and_its_name_is_free(ctx: JobContext, traits: KindTraits) -> None:
    actor = ctx.create_actor(Counter, name="counter")
    other = ctx.create_actor(Counter)
    assert actor.add().result(timeout=PATIENCE) == 1
    ctx.kill(actor)
    ctx.kill(actor)
    with pytest.raises(ActorDiedError, match=traits.killed):
        actor.add().result(timeout=PATIENCE)
    again = ctx.create_actor(Counter, name="counter")
    assert again.add().result(timeout=PATIENCE) == 1
    assert other.add().result(timeout=PATIENCE) == 1
    with pytest.raises(InvalidOptionError, match="actor is 'counter'"):
        ctx.kill("counter")  # type: ignore[arg-type]


def test_an_actor_is_found_by_its_name_until_it_is_killed(ctx: JobContext, traits: KindTraits) -> None:
    def add_by_name() -> int:
        return get_job_context().get_actor("counter").add().result(timeout=PATIENCE)  # type: ignore[no-any-return]

    with pytest.raises(ActorNotFoundError, match="no actor 'counter'"):
        ctx.get_actor("counter")
    actor = ctx.create_actor(Counter, name="counter", num_cpus=0)
    found = ctx.get_actor("counter")
    assert found == actor
    assert found.add().result(timeout=PATIENCE) == 1
    assert ctx.run(add_by_name).result(timeout=PATIENCE) == 2
    with pytest.raises(InvalidOptionError, match="name is ''"):
        ctx.get_actor("")
    with pytest.raises(AttributeError):
        found.absent  # noqa: B018
    with pytest.raises(ActorNotFoundError) as caught:
        ctx.get_actor("other")
    if not traits.fray_actors:  # of which a namespace may have thousands
        assert "Known actors: counter" in str(caught.value)
        assert caught.value.known == ("counter",)
    ctx.kill(actor)
    with pytest.raises(ActorNotFoundError):
        ctx.get_actor("counter")


@pytest.mark.traits(concurrent=True)
def test_a_call_that_waits_behind_another_one_ends_with_its_timeout(
    ctx: JobContext, gate: Gate, signal: Signal
) -> None:
    actor = ctx.create_actor(Counter, name="counter", num_cpus=0)
    assert actor.add.options(timeout=PATIENCE).remote().result(timeout=PATIENCE) == 1
    blocked = actor.block.options(timeout=PATIENCE)(gate, signal)
    signal.wait()
    waiting = actor.add.options(timeout=0.1)()
    with pytest.raises(TaskTimeoutError, match="counter"):
        waiting.result(timeout=PATIENCE)
    # Asking for its methods goes to the actor behind the word of that end, which on Ray the caller sends.
    again = ctx.get_actor("counter").add
    gate.open()
    blocked.result(timeout=PATIENCE)
    assert again().result(timeout=PATIENCE) == 2
    with pytest.raises(InvalidOptionError, match="timeout is 0"):
        actor.add.options(timeout=0)


@pytest.mark.traits(concurrent=True)
def test_calls_of_a_killed_actor_fail(
    ctx: JobContext, traits: KindTraits, gate: Gate, signal: Signal
) -> None:
    actor = ctx.create_actor(Counter)
    running, waiting = actor.block(gate, signal), actor.add()
    signal.wait()
    ctx.kill(actor)
    for ref in (running, waiting):
        with pytest.raises(ActorDiedError, match=traits.killed):
            ref.result(timeout=PATIENCE)


@pytest.mark.traits(concurrent=True)
def test_a_call_that_runs_ends_with_its_timeout_and_the_actor_goes_on(ctx: JobContext, gate: Gate) -> None:
    actor = ctx.create_actor(Counter, name="counter", num_cpus=0)
    with pytest.raises(TaskTimeoutError, match="counter"):
        actor.hold.options(timeout=1)(gate).result(timeout=PATIENCE)
    gate.open()
    assert actor.add().result(timeout=PATIENCE) == 1
