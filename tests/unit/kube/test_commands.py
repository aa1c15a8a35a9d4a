"""Commands in containers, against a server on loopback that speaks `v5.channel.k8s.io`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from fray.kube.client import KubernetesApi
from fray.kube.errors import ForbiddenError, NotFoundError, ServerError, UnreachableError
from fray.kube.pod_streams import COMMAND_PROTOCOL, Channel, RemoteCommand
from tests.unit.kube.scripted_server import ask, status_of

SUCCESS = {"kind": "Status", "metadata": {}, "status": "Success"}
PATH = "/api/v1/namespaces/ml/pods/train-0/exec"


def failure(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {**SUCCESS, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


class Container:
    """Answers one command; `script` talks with the client, `seen` is what came, by channel."""

    def __init__(
        self, script: Callable[[Container], Awaitable[None]], protocol: str = COMMAND_PROTOCOL
    ) -> None:
        self.script, self.protocol = script, protocol
        self.requests: list[web.Request] = []
        self.seen: list[tuple[int, bytes]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.socket = web.WebSocketResponse(protocols=(self.protocol,))
        await self.socket.prepare(request)
        await self.script(self)
        await self.socket.close()
        return self.socket

    async def hear(self) -> tuple[int, bytes]:
        message = await self.socket.receive()
        assert message.type is WSMsgType.BINARY
        self.seen.append((message.data[0], message.data[1:]))
        return self.seen[-1]

    async def say(self, channel: int, data: bytes) -> None:
        await self.socket.send_bytes(bytes([channel]) + data)

    async def end(self, status: dict[str, Any]) -> None:
        await self.say(Channel.ENDING, json.dumps(status).encode())


def use(handler: Any, talk: Callable[[RemoteCommand], Awaitable[None]], *, tty: bool = False) -> None:
    async def main(api: KubernetesApi) -> None:
        command = ["sh", "-c", "a && b c"]
        async with api.run_command(
            "train-0", namespace="ml", container="main", command=command, tty=tty
        ) as running:
            await talk(running)

    ask(handler, main)


async def read(running: RemoteCommand) -> list[tuple[Channel, bytes]]:
    return [piece async for piece in running]


def test_a_command_reads_and_writes_and_ends_with_its_code() -> None:
    async def cat(container: Container) -> None:
        await container.say(Channel.OUTPUT, b"")  # as a server greets
        while (heard := await container.hear()) != (Channel.CLOSE, bytes([Channel.INPUT])):
            await container.say(Channel.OUTPUT, heard[1])
        await container.say(Channel.ERRORS, b"\xff over\n")
        await container.end(failure(3))

    async def talk(running: RemoteCommand) -> None:
        await running.send(b"one")
        await running.send(b"two")
        await running.end_input()
        expected = [(Channel.OUTPUT, b"one"), (Channel.OUTPUT, b"two"), (Channel.ERRORS, b"\xff over\n")]
        assert await read(running) == expected
        assert running.exit_code == 3

    container = Container(cat)
    use(container.answer, talk)
    (request,) = container.requests
    assert request.path == PATH
    assert request.query.getall("command") == ["sh", "-c", "a && b c"]
    asked = {name: request.query[name] for name in ("container", "stdin", "stdout", "stderr", "tty")}
    assert asked == {
        "container": "main", "stdin": "true", "stdout": "true", "stderr": "true", "tty": "false"
    }  # fmt: skip


def test_a_terminal_has_one_output_and_a_size() -> None:
    async def shell(container: Container) -> None:
        await container.hear()
        await container.end(SUCCESS)

    async def talk(running: RemoteCommand) -> None:
        await running.resize(120, 40)
        assert await read(running) == []
        assert running.exit_code == 0

    container = Container(shell)
    use(container.answer, talk, tty=True)
    assert container.requests[0].query["tty"] == "true"
    assert container.requests[0].query["stderr"] == "false"
    ((channel, size),) = container.seen
    assert channel == Channel.SIZE
    assert json.loads(size) == {"Width": 120, "Height": 40}


def test_a_command_that_can_not_be_run_is_an_error_of_the_server() -> None:
    async def refuse(container: Container) -> None:
        await container.end(status_of(500, "InternalError", 'container not found ("main")'))

    async def talk(running: RemoteCommand) -> None:
        await read(running)
        with pytest.raises(ServerError, match="container not found"):
            _ = running.exit_code

    use(Container(refuse).answer, talk)


def test_a_connection_that_ends_before_the_command_is_no_success() -> None:
    async def vanish(container: Container) -> None:
        await container.say(Channel.OUTPUT, b"half")

    async def talk(running: RemoteCommand) -> None:
        assert await read(running) == [(Channel.OUTPUT, b"half")]
        with pytest.raises(UnreachableError, match="before the command did"):
            _ = running.exit_code

    use(Container(vanish).answer, talk)


@pytest.mark.parametrize("ending", [b"no JSON", b"[]"])
def test_an_ending_that_is_no_status_is_no_success(ending: bytes) -> None:
    async def garble(container: Container) -> None:
        await container.say(Channel.ENDING, ending)

    async def talk(running: RemoteCommand) -> None:
        with pytest.raises(UnreachableError):
            await read(running)

    use(Container(garble).answer, talk)


async def never(_: RemoteCommand) -> None:
    raise AssertionError


@pytest.mark.parametrize(("status", "kind"), [(403, ForbiddenError), (404, NotFoundError)])
def test_a_refusal_is_told_in_the_words_of_the_server(status: int, kind: type[Exception]) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response(status_of(status, "Refused", "pods/exec: not you"), status=status)

    with pytest.raises(kind, match="not you"):
        use(refuse, never)


def test_a_server_that_speaks_another_protocol_is_not_talked_to() -> None:
    async def nothing(_: Container) -> None:
        pass

    with pytest.raises(UnreachableError, match=COMMAND_PROTOCOL):
        use(Container(nothing, "v4.channel.k8s.io").answer, never)
