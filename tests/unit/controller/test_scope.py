"""Of installations whose scopes overlap one serves its scope, and the others say so and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fray.kube.errors import ForbiddenError, ServerError
from fray.kube.resources import LEASES
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.lease import LeaseLostError
from fray_operator.scope import Scope
from tests.unit.controller.virtual_time import run

SECONDS = 60.0
ALL: tuple[str, ...] = ()


class Installation:
    """An installation of a cluster that serves its scope from the moment when it may."""

    def __init__(
        self, server: MemoryServer, name: str, namespaces: tuple[str, ...], api: MemoryApi | None = None
    ) -> None:
        self.scope = Scope(
            api or MemoryApi(server), namespaces=namespaces, installation=name, seconds=SECONDS
        )
        self.serves = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.scope.acquire()
        self.serves = True
        try:
            await asyncio.gather(*(claim.keep() for claim in self.scope.claims))
        finally:
            self.serves = False

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def end(self) -> None:
        await self.kill()
        await self.scope.release()

    async def await_end(self) -> None:
        await self._task


def play(story: Callable[[MemoryServer], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(MemoryServer())

    run(main())


OVERLAPS = [
    (ALL, ALL, "all namespaces are"),
    (ALL, ("a",), "all namespaces are"),
    (("a",), ALL, "namespace a is"),
    (("a", "b"), ("b", "c"), "namespace b is"),
    (("default",), ALL, "namespace default is"),
    (ALL, ("default",), "all namespaces are"),
]


@pytest.mark.parametrize(("of_first", "of_second", "told"), OVERLAPS)
def test_the_second_of_two_that_overlap_says_so_and_waits_until_the_first_has_ended(
    of_first: tuple[str, ...], of_second: tuple[str, ...], told: str
) -> None:
    async def story(server: MemoryServer) -> None:
        first = Installation(server, "one", of_first)
        await asyncio.sleep(1)
        second = Installation(server, "two", of_second)
        for _ in range(50):
            await asyncio.sleep(20)
            assert (first.serves, second.serves) == (True, False)
            assert second.scope.overlap == f"{told} served by the installation in namespace one already"
        await first.end()
        await asyncio.sleep(SECONDS / 2)
        assert (second.serves, second.scope.overlap) == (True, None)
        await second.end()

    play(story)


def test_installations_that_do_not_overlap_serve_beside_each_other() -> None:
    async def story(server: MemoryServer) -> None:
        both = [Installation(server, "one", ("a", "b")), Installation(server, "two", ("c",))]
        await asyncio.sleep(1000)
        assert [each.serves for each in both] == [True, True]
        for each in both:
            await each.end()

    play(story)


@pytest.mark.parametrize(("of_first", "of_second", "told"), OVERLAPS)
@pytest.mark.parametrize("late", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_two_that_start_at_the_same_moment_never_both_serve_and_one_does_before_long(
    late: float, of_first: tuple[str, ...], of_second: tuple[str, ...], told: str
) -> None:
    async def story(server: MemoryServer) -> None:
        async def slow(_: Call) -> None:
            await asyncio.sleep(0.2)

        first = Installation(server, "one", of_first, MemoryApi(server, before=slow))
        await asyncio.sleep(late)
        second = Installation(server, "two", of_second, MemoryApi(server, after=slow))
        for _ in range(3000):
            await asyncio.sleep(0.1)
            assert not (first.serves and second.serves)
        assert first.serves or second.serves
        await first.end()
        await second.end()

    play(story)


def test_an_installation_that_was_killed_is_followed_when_its_claims_have_run_out() -> None:
    async def story(server: MemoryServer) -> None:
        first = Installation(server, "one", ALL)
        await asyncio.sleep(1)
        second = Installation(server, "two", ("a",))
        await asyncio.sleep(100)
        await first.kill()
        await asyncio.sleep(SECONDS / 2)
        assert not second.serves
        await asyncio.sleep(SECONDS)
        assert second.serves
        await second.end()

    play(story)


def test_the_next_process_of_an_installation_goes_on_at_once() -> None:
    async def story(server: MemoryServer) -> None:
        first = Installation(server, "one", ("a", "b"))
        await asyncio.sleep(100)
        await first.kill()
        again = Installation(server, "one", ("a", "b"))
        await asyncio.sleep(1)
        assert again.serves
        await again.end()

    play(story)


def test_an_installation_whose_claim_was_taken_serves_no_more() -> None:
    async def story(server: MemoryServer) -> None:
        first = Installation(server, "one", ("a",))
        await asyncio.sleep(1)
        lease = server.get(LEASES, "fray-scope", "a")
        server.store(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
        with pytest.raises(LeaseLostError, match="one no longer holds the lease fray-scope"):
            await first.await_end()

    play(story)


def test_the_claim_of_a_cluster_that_one_may_not_read_does_not_exist() -> None:
    async def story(server: MemoryServer) -> None:
        async def forbid(call: Call) -> None:
            if call.name == "fray-scope-cluster":
                raise ForbiddenError("GET leases", 403, "Forbidden", "no right")

        installation = Installation(server, "one", ("a",), MemoryApi(server, before=forbid))
        await asyncio.sleep(1)
        assert installation.serves
        await installation.end()

    play(story)


@pytest.mark.parametrize(
    ("namespaces", "method", "told"),
    [
        (("a",), "GET", "the claims of other installations can't be read: "),
        (ALL, "LIST", "the claims of other installations can't be read: "),
        (("a",), "POST", "fray-scope in namespace a could not be claimed"),
        (ALL, "POST", "fray-scope-cluster in namespace default could not be claimed"),
    ],
)
def test_without_an_answer_nothing_is_served(namespaces: tuple[str, ...], method: str, told: str) -> None:
    async def story(server: MemoryServer) -> None:
        async def fail(call: Call) -> None:
            if call.method == method and now() < 100:
                raise ServerError(f"{method} leases", 500, "", "broken")

        installation = Installation(server, "one", namespaces, MemoryApi(server, before=fail))
        await asyncio.sleep(90)
        assert not installation.serves
        assert (installation.scope.overlap or "").startswith(told)
        await asyncio.sleep(90)
        assert installation.serves
        await installation.end()

    play(story)


def test_a_few_failures_at_the_start_cost_seconds() -> None:
    async def story(server: MemoryServer) -> None:
        failures = iter(range(5))

        async def fail(_: Call) -> None:
            if next(failures, None) is not None:
                raise ServerError("GET leases", 500, "", "broken")

        installation = Installation(server, "one", ("a",), MemoryApi(server, before=fail))
        await asyncio.sleep(12)
        assert installation.serves
        await installation.end()

    play(story)


def now() -> float:
    return asyncio.get_running_loop().time()
