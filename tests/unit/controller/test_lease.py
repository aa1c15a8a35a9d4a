"""The lease: never two leaders, whatever the API server does, and always one before long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fray.kube.errors import ApiError, ConflictError, ServerError, ThrottledError, UnreachableError
from fray.kube.resources import LEASES
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.lease import Lease, LeaseLostError
from tests.unit.controller.virtual_time import run

SECONDS = 6.0


def new_lease(server: MemoryServer, identity: str, api: MemoryApi | None = None, **options: Any) -> Lease:
    options = {"namespace": "default", "name": "leader", "seconds": SECONDS, **options}
    return Lease(api or MemoryApi(server), identity=identity, **options)


def spec_of(server: MemoryServer) -> dict[str, Any]:
    lease = server.find(LEASES, "leader")
    assert lease is not None
    return dict(lease["spec"])


async def lead(lease: Lease) -> None:
    """Lead until the lease is lost."""
    await lease.acquire()
    await lease.keep()


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def hang(since: float, until: float) -> Callable[[Call], Awaitable[None]]:
    """Hold calls that come in a span of time until its end."""

    async def held(_: Call) -> None:
        if since <= now() < until:
            await asyncio.sleep(until - now())

    return held


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_first_process_leads_at_once_and_renews_for_as_long_as_it_lives() -> None:
    async def main() -> None:
        server = MemoryServer()
        lease = new_lease(server, "a")
        assert not lease.held()
        with pytest.raises(LeaseLostError, match="a no longer holds the lease leader"):
            lease.require()
        task = asyncio.create_task(lead(lease))
        for _ in range(100):
            await asyncio.sleep(1)
            lease.require()
        spec = spec_of(server)
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 6, 0)
        await end(task)

    run(main())


def test_a_standby_follows_a_leader_that_died_within_one_duration_of_what_it_saw_last() -> None:
    async def main() -> None:
        server = MemoryServer()
        first, second = new_lease(server, "a"), new_lease(server, "b")
        leading, waiting = asyncio.create_task(lead(first)), asyncio.create_task(lead(second))
        await asyncio.sleep(30)
        assert first.held()
        assert not second.held()
        await end(leading)
        died = now()
        while not second.held():
            assert now() < died + SECONDS * 1.5
            await asyncio.sleep(0.1)
        assert not first.held()
        assert spec_of(server)["leaseTransitions"] == 1
        await end(waiting)

    run(main())


def test_a_standby_follows_at_once_when_the_lease_was_released() -> None:
    async def main() -> None:
        server = MemoryServer()
        first, second = new_lease(server, "a", seconds=600), new_lease(server, "b", seconds=1)
        leading = asyncio.create_task(lead(first))
        await asyncio.sleep(1)
        waiting = asyncio.create_task(lead(second))
        await asyncio.sleep(100)
        assert not second.held()
        await end(leading)
        await first.release()
        assert not first.held()
        await asyncio.sleep(1)
        assert second.held()
        await end(waiting)

    run(main())


def test_only_the_holder_releases() -> None:
    async def main() -> None:
        server = MemoryServer()
        first, second = new_lease(server, "a"), new_lease(server, "b")
        await first.acquire()
        writes = len(server.writes)
        await second.release()
        assert len(server.writes) == writes
        server.store(LEASES, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "c"}})
        await first.release()
        assert spec_of(server)["holderIdentity"] == "c"

    run(main())


def test_a_leader_with_a_hung_server_stops_leading_before_a_successor_may() -> None:
    async def main() -> None:
        server = MemoryServer()
        first = new_lease(server, "a", MemoryApi(server, before=hang(10.0, 1000.0)))
        second = new_lease(server, "b")
        leading, waiting = asyncio.create_task(lead(first)), asyncio.create_task(lead(second))
        await asyncio.sleep(9.9)
        assert first.held()
        while first.held():
            assert not second.held()
            await asyncio.sleep(0.01)
        assert now() <= 10 + SECONDS * 2 / 3 + 0.02
        while not second.held():  # noqa: ASYNC110 - who leads is looked at, nobody tells it
            await asyncio.sleep(0.01)
        # The process learns of it although no call ever returned.
        with pytest.raises(LeaseLostError):
            await leading
        assert now() <= 10 + 2 * SECONDS
        await end(waiting)

    run(main())


def test_a_standby_with_a_hung_server_goes_on_trying() -> None:
    async def main() -> None:
        server = MemoryServer()
        lease = new_lease(server, "a", MemoryApi(server, before=hang(0.0, 100.0)))
        task = asyncio.create_task(lease.acquire())
        await asyncio.sleep(99)
        assert not task.done()
        await task
        assert lease.held()

    run(main())


@pytest.mark.parametrize("error", [ServerError, ThrottledError, ConflictError, UnreachableError])
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_lease_whose_creation_is_answered_by_an_error_is_taken_all_the_same(
    error: type[ApiError], carried_out: bool
) -> None:
    async def main() -> None:
        server = MemoryServer()

        async def fail(call: Call) -> None:
            if call.method == "POST" and now() == 0:
                raise error("POST leases", 0, "Fault", "")

        api = MemoryApi(server, after=fail) if carried_out else MemoryApi(server, before=fail)
        lease = new_lease(server, "a", api)
        await lease.acquire()
        assert 0 < now() <= SECONDS / 5 + 0.1
        assert (spec_of(server)["holderIdentity"], spec_of(server)["leaseTransitions"]) == ("a", 0)

    run(main())


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_leader_outlives_errors_that_pass_in_time(method: str) -> None:
    async def main() -> None:
        server = MemoryServer()

        async def fail(call: Call) -> None:
            if 10 <= now() < 12 and call.method == method:
                raise ServerError("request", 503, "ServiceUnavailable", "etcd is away")

        lease = new_lease(server, "a", MemoryApi(server, before=fail))
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(20)
        assert lease.held()
        assert not task.done()
        await end(task)

    run(main())


def test_a_renewal_that_is_never_answered_leaves_no_moment_without_a_leader() -> None:
    async def main() -> None:
        server = MemoryServer()
        swallowed: list[Call] = []

        async def swallow(call: Call) -> None:
            if now() >= 10 and call.method == "PUT" and not swallowed:
                swallowed.append(call)
                await asyncio.sleep(1000)
            await asyncio.sleep(0.1)

        lease = new_lease(server, "a", MemoryApi(server, before=swallow))
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(5)
        while now() < 40:
            lease.require()
            await asyncio.sleep(0.01)
        assert swallowed
        await end(task)

    run(main())


def test_a_leader_whose_renewal_was_carried_out_but_not_answered_leads_on() -> None:
    async def main() -> None:
        server = MemoryServer()

        async def lose(call: Call) -> None:
            if 10 <= now() < 11 and call.method == "PUT":
                await asyncio.sleep(1000)

        lease = new_lease(server, "a", MemoryApi(server, after=lose))
        other = new_lease(server, "b")
        tasks = [asyncio.create_task(lead(lease)), asyncio.create_task(lead(other))]
        await asyncio.sleep(40)
        assert lease.held() != other.held()
        assert not any(task.done() and not task.cancelled() for task in tasks if lease.held())
        await end(*tasks)

    run(main())


def test_a_lease_that_somebody_else_edits_is_taken_again_at_the_next_renewal() -> None:
    async def main() -> None:
        server = MemoryServer()
        edited = False

        async def edit(call: Call) -> None:
            nonlocal edited
            if call.method == "PUT" and now() >= 10 and not edited:
                edited = True
                lease = server.find(LEASES, "leader")
                assert lease is not None
                server.store(LEASES, {**lease, "metadata": {**lease["metadata"], "labels": {"a": "b"}}})

        lease = new_lease(server, "a", MemoryApi(server, before=edit))
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(30)
        assert edited
        assert lease.held()
        found = server.find(LEASES, "leader")
        assert found is not None
        assert found["metadata"]["labels"] == {"a": "b"}
        await end(task)

    run(main())


def test_a_lease_that_somebody_took_ends_the_leader() -> None:
    async def main() -> None:
        server = MemoryServer()
        lease = new_lease(server, "a")
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(10)
        server.store(
            LEASES,
            {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 600}},
        )
        with pytest.raises(LeaseLostError):
            await task

    run(main())


def test_a_process_that_was_stopped_for_longer_than_it_may_lead_asks_for_nothing_more() -> None:
    """Nobody has taken the lease since, so a renewal would be carried out."""

    async def main() -> None:
        server = MemoryServer()
        stopped = 0.0
        lease = new_lease(server, "a", clock=lambda: now() + stopped)
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(10)
        stopped, calls = SECONDS, list(server.calls)
        with pytest.raises(LeaseLostError):
            await asyncio.wait_for(task, SECONDS)
        assert server.calls == calls

    run(main())


def test_a_lease_that_was_deleted_is_made_again() -> None:
    async def main() -> None:
        server = MemoryServer()
        lease = new_lease(server, "a")
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(10)
        server.remove(LEASES, "leader")
        await asyncio.sleep(10)
        assert lease.held()
        assert spec_of(server)["holderIdentity"] == "a"
        await end(task)

    run(main())


def test_a_lease_without_a_spec_is_taken() -> None:
    async def main() -> None:
        server = MemoryServer()
        # Made by hand, or emptied: a Lease's spec is optional.
        server.store(LEASES, {"metadata": {"name": "leader"}})
        lease = new_lease(server, "a")
        task = asyncio.create_task(lead(lease))
        await asyncio.sleep(10)
        assert lease.held()
        spec = spec_of(server)
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 1)
        await end(task)
        await lease.release()
        assert spec_of(server)["holderIdentity"] == ""

    run(main())


def test_the_holders_own_duration_counts_for_those_who_wait() -> None:
    async def main() -> None:
        server = MemoryServer()
        server.store(
            LEASES,
            {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "old", "leaseDurationSeconds": 60}},
        )
        lease = new_lease(server, "a")
        await lease.acquire()
        assert 60 <= now() <= 60 + SECONDS

    run(main())


@pytest.mark.parametrize("left", [None, {"holderIdentity": "gone", "leaseDurationSeconds": 1}, {}])
def test_a_claim_whose_answer_was_not_awaited_is_released(left: dict[str, Any] | None) -> None:
    async def main() -> None:
        server = MemoryServer()
        if left is not None:
            server.store(LEASES, {"metadata": {"name": "leader"}, "spec": left})
        claimed = asyncio.Event()

        async def never_answer(call: Call) -> None:
            if call.method != "GET" and not claimed.is_set():
                claimed.set()
                await asyncio.Event().wait()

        first = new_lease(server, "a", MemoryApi(server, after=never_answer), seconds=600)
        acquiring = asyncio.create_task(first.acquire())
        await claimed.wait()
        assert spec_of(server)["holderIdentity"] == "a"
        await end(acquiring)
        assert not first.held()
        await first.release()
        assert spec_of(server)["holderIdentity"] == ""

    run(main())


def test_a_process_that_never_led_writes_nothing_when_it_ends() -> None:
    async def main() -> None:
        server = MemoryServer()
        first, second = new_lease(server, "a"), new_lease(server, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(1)
        await end(waiting)
        calls = len(server.calls)
        await second.release()
        assert len(server.calls) == calls

    run(main())


def test_releasing_through_a_server_that_fails_or_hangs_is_given_up_soon() -> None:
    async def main() -> None:
        server = MemoryServer()

        async def refuse(_: Call) -> None:
            if now() >= 5:
                raise ThrottledError("request", 429, "TooManyRequests", "later")

        refused = new_lease(server, "a", MemoryApi(server, before=refuse))
        await refused.acquire()
        await asyncio.sleep(3)
        hung = new_lease(MemoryServer(), "a", MemoryApi(MemoryServer(), before=hang(4.0, 1000.0)))
        await hung.acquire()
        await asyncio.sleep(2.5)
        started = now()
        await hung.release()
        assert now() - started <= SECONDS / 3
        await refused.release()
        assert not refused.held()
        assert not hung.held()

    run(main())


spans = st.lists(st.tuples(st.floats(0, 60), st.floats(0.1, 12)), max_size=3)


@given(
    hangs=st.lists(spans, min_size=2, max_size=3),
    losses=st.lists(spans, min_size=3, max_size=3),
    latencies=st.lists(st.floats(0, 1.5), min_size=3, max_size=3),
    deaths=st.lists(st.floats(5, 60), min_size=3, max_size=3),
)
@settings(max_examples=40, phases=[Phase.generate])
def test_there_are_never_two_leaders_and_in_the_end_there_is_one(
    hangs: list[list[tuple[float, float]]],
    losses: list[list[tuple[float, float]]],
    latencies: list[float],
    deaths: list[float],
) -> None:
    """Each process has its own latency, spans in which calls arrive late, and spans in which answers do."""

    def build_around(spans: list[tuple[float, float]], latency: float) -> Callable[[Call], Awaitable[None]]:
        async def around(_: Call) -> None:
            await asyncio.sleep(latency / 2)
            for since, length in spans:
                if since <= now() < since + length:
                    await asyncio.sleep(since + length - now())

        return around

    async def main() -> None:
        server = MemoryServer()
        leases: list[Lease] = []

        async def live(index: int) -> None:
            """A process that is started again each time it loses the lease, until it dies for a while."""
            api = MemoryApi(
                server,
                before=build_around(hangs[index], latencies[index]),
                after=build_around(losses[index], latencies[index]),
            )
            while True:
                lease = new_lease(server, f"{index}-{now()}", api)
                leases.append(lease)
                try:
                    async with asyncio.timeout_at(deaths[index] if now() < deaths[index] else None):
                        await lead(lease)
                except LeaseLostError:
                    continue
                except TimeoutError:
                    leases.remove(lease)  # it was killed: what it believes doesn't matter any more
                    await asyncio.sleep(3)

        tasks = [asyncio.create_task(live(index)) for index in range(len(hangs))]
        while now() < 120:
            await asyncio.sleep(0.05)
            assert sum(lease.held() for lease in leases) <= 1
        # Everything has been well for a while.
        assert sum(lease.held() for lease in leases) == 1
        await end(*tasks)

    run(main())
