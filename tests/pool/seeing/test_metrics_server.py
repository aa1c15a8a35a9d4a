"""The page of metrics over its unix socket: asked for properly, and by clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fray.errors import AddressError
from fray.runtime.pool.head.metrics_server import (
    CLIENT_SECONDS,
    MAX_CLIENTS,
    MAX_CLIENTS_OF_SOURCE,
    MAX_REQUEST,
    MetricsServer,
    Page,
)
from fray.runtime.pool.transport.addresses import Address
from tests.pool.standing_time import StandingLoop

GET = b"GET /metrics HTTP/1.1\r\nHost: pool\r\n\r\n"
PAGE = 50_000_000
"""More than what sockets hold."""


def serving(
    folder: Path,
    use: Callable[[Path], Awaitable[None]],
    *,
    render: Callable[[], str] = lambda: "page\n",
    **more: Any,
) -> None:
    """Run `use` beside a server, in one event loop; anything that it tells the loop of is an error.

    Time stands still in it: a client is too slow when `use` says so, and not when the machine is.
    """

    async def run() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        address = Address(path=str(folder / "metrics"))
        server = MetricsServer(address, {"/metrics": Page("text/x", render)}, **more)
        await server.start()
        try:
            await use(Path(address.path))
        finally:
            await server.close()
        assert not told
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=StandingLoop) as runner:
        runner.run(run())
    assert not list(folder.iterdir())


async def turn() -> None:
    """Let the loop do what is due."""
    await asyncio.sleep(0)


async def pass_time_when_served(clients: int) -> None:
    """Let all the time pass that a client has, once the server has taken in so many."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StandingLoop)
    while sum("_serve" in str(task.get_coro()) for task in asyncio.all_tasks()) < clients:
        await turn()
    await turn()  # the last of them has begun
    loop.pass_time(CLIENT_SECONDS)


async def ask(path: Path, request: bytes, *, end: bool = False) -> bytes:
    """Return all that the server says; `end`: nothing more will be sent."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        if end:
            writer.write_eof()
        return await reader.read()
    finally:
        writer.transport.abort()


async def send_until_refused(writer: asyncio.StreamWriter) -> int:
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 100_000_000:
            writer.write(b"y" * 65536)
            await writer.drain()
            sent += 65536
    return sent


@pytest.mark.parametrize("request_line", [b"GET /metrics HTTP/1.1", b"GET /metrics?name=x HTTP/1.0"])
def test_the_page_is_there(tmp_path: Path, request_line: bytes) -> None:
    async def use(path: Path) -> None:
        head, _, body = (await ask(path, request_line + b"\r\nHost: pool\r\n\r\n")).partition(b"\r\n\r\n")
        assert body == b"page\n"
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/x",
            b"Content-Length: 5",
            b"Connection: close",
        ]

    serving(tmp_path, use)


def test_a_request_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        for byte in GET:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).endswith(b"page\n")
        writer.transport.abort()

    serving(tmp_path, use)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"G\0T /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"x" * (MAX_REQUEST - 1), 400),
        (b"x" * MAX_REQUEST, 431),
    ],
)
def test_what_is_no_such_request_is_refused(tmp_path: Path, request_bytes: bytes, status: int) -> None:
    async def use(path: Path) -> None:
        answer = await ask(path, request_bytes, end=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"Connection: close" in answer
        assert (await ask(path, GET)).endswith(b"page\n")

    serving(tmp_path, use)


def test_no_more_is_read_than_a_request_may_measure(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        # A peer that never stops sending is closed once it has sent what a socket's buffers hold.
        _, writer = await asyncio.open_unix_connection(path)
        assert await send_until_refused(writer) < 4_000_000
        writer.transport.abort()
        assert (await ask(path, GET)).endswith(b"page\n")

    serving(tmp_path, use)


def test_silent_clients_are_cut_off_and_others_have_their_turn(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        silent = [await asyncio.open_unix_connection(path) for _ in range(MAX_CLIENTS + 3)]
        # All places are taken; the answer comes as soon as the first of them are cut off.
        answer = asyncio.create_task(ask(path, GET))
        await pass_time_when_served(MAX_CLIENTS)
        assert (await answer).endswith(b"page\n")
        await pass_time_when_served(3)
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.transport.abort()

    serving(tmp_path, use)


def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(path, limit=1024)
        writer.write(GET)
        for _ in range(MAX_CLIENTS):  # others have their turn in between
            assert (await ask(path, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
        await pass_time_when_served(1)
        received = 0
        while not reader.at_eof():
            received += len(await reader.read(65536))
        assert received < PAGE
        writer.transport.abort()

    serving(tmp_path, use, render=lambda: "x" * PAGE)


def test_a_client_that_has_gone_does_no_harm(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        for _ in range(50):
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(GET)
            writer.transport.abort()
        assert (await ask(path, GET)).endswith(b"page\n")

    serving(tmp_path, use)


def test_the_page_is_not_made_for_each_request(tmp_path: Path) -> None:
    now = [100.0]
    made: list[float] = []

    def render() -> str:
        made.append(now[0])
        now[0] += 0.5  # it takes half a second
        return f"{len(made)}\n"

    async def use(path: Path) -> None:
        for _ in range(20):
            assert (await ask(path, GET)).endswith(b"\r\n1\n")
        now[0] += 9.9  # a twentieth of the time goes into it: it's good for 10 s
        assert (await ask(path, GET)).endswith(b"\r\n1\n")
        now[0] += 0.2
        assert (await ask(path, GET)).endswith(b"\r\n2\n")

    serving(tmp_path, use, render=render, clock=lambda: now[0])


def test_a_page_that_cannot_be_made_is_logged_and_the_server_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def render() -> str:
        raise ZeroDivisionError

    async def use(path: Path) -> None:
        assert await ask(path, GET) == b""
        assert (await ask(path, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")

    serving(tmp_path, use, render=render)
    assert "could not be made" in caplog.text


def test_only_the_user_may_open_the_socket(tmp_path: Path) -> None:
    modes: list[int] = []

    async def use(path: Path) -> None:
        modes.append(stat.S_IMODE(os.stat(path).st_mode))  # noqa: PTH116 - no Path in async code

    serving(tmp_path, use)
    assert modes == [0o600]


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(AddressError, match="0700"):
        serving(tmp_path, lambda _: asyncio.sleep(0))


# --- over TCP, where anybody may come ----------------------------------------------------------------------


def serving_tcp(use: Callable[[str, int], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        pages = {"/metrics": Page("text/x", lambda: "page\n"), "/pool.json": Page("text/y", lambda: "{}\n")}
        server = MetricsServer(Address(host="127.0.0.1", port=0), pages, **more)
        await server.start()
        try:
            await use(server.address.host, server.address.port)
        finally:
            await server.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


async def ask_tcp(host: str, port: int, path: str, *, source: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: pool\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_each_page_has_its_path_and_its_type() -> None:
    async def use(host: str, port: int) -> None:
        assert b"text/x" in (found := await ask_tcp(host, port, "/metrics"))
        assert found.endswith(b"page\n")
        assert b"text/y" in (found := await ask_tcp(host, port, "/pool.json"))
        assert found.endswith(b"{}\n")
        assert (await ask_tcp(host, port, "/")).startswith(b"HTTP/1.1 404 ")

    serving_tcp(use)


def test_a_silent_machine_takes_no_places_from_others() -> None:
    async def use(host: str, port: int) -> None:
        silent = [await asyncio.open_connection(host, port) for _ in range(2 * MAX_CLIENTS)]
        # Those above its share are cut off at once, the others hold their places.
        cut_off = [asyncio.create_task(reader.read()) for reader, _ in silent]
        for coming in itertools.islice(asyncio.as_completed(cut_off), len(silent) - MAX_CLIENTS_OF_SOURCE):
            assert await coming == b""
        assert (await ask_tcp(host, port, "/metrics", source="127.0.0.2")).endswith(b"page\n")
        for _, writer in silent:
            writer.transport.abort()
        await asyncio.gather(*cut_off, return_exceptions=True)

    serving_tcp(use, client_seconds=600.0)
