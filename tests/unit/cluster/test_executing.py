"""A command in a job's host: which pod runs it, its streams, and what is said where it can't be run."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from fray import testing
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.running_hosts import choose_pod, run_command
from fray.errors import CommandNotRunError, HostNotRunningError, LogsNotFoundError
from fray.kube.api import Manifest
from fray.kube.pod_streams import Channel
from fray.kube.resources import FRAYJOBS
from fray.testing import build_frayjob
from fray.types import JobId
from fray.wire.frayjob import FrayJob
from tests.unit.kube.scripted_server import connect, status_of
from tests.unit.kube.test_commands import SUCCESS, Container, failure

RUNNING = {"running": {}}
NOW = "2026-01-01T00:00:00Z"


def build_job(*, attempts: int = 1, **status: Any) -> Manifest:
    told = {"attempts": [{"number": number + 1} for number in range(attempts)], **status}
    where = {"namespace": "ml", "uid": "u-1"}
    resources = {"tpu": {"type": "v5p-16"}}
    return build_frayjob(metadata=where, status=told, replicas=2, resources=resources).to_manifest()


def build_pod(
    rank: int, state: dict[str, Any] | None, *, attempt: int = 1, phase: str = "Running"
) -> Manifest:
    name = f"pod-{attempt}-{rank}"
    pod = testing.build_pod(rank, phase, state, name=name, hosts=2, attempt=attempt)
    pod["status"].setdefault("containerStatuses", []).insert(0, {"name": "proxy", "state": RUNNING})
    return pod


def choose(pods: Sequence[Manifest], rank: int, **job: Any) -> str:
    return choose_pod(FrayJob.from_manifest(build_job(**job)), pods, rank)


def test_the_pod_is_that_of_the_rank_in_the_latest_attempt() -> None:
    pods = [build_pod(rank, RUNNING, attempt=attempt) for attempt in (1, 2) for rank in range(4)]
    pods.insert(0, {"metadata": {"name": "foreign"}})
    assert [choose(pods, rank, attempts=2) for rank in range(4)] == [f"pod-2-{rank}" for rank in range(4)]


ENDED = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": NOW}
PULLING = {"waiting": {"reason": "ErrImagePull"}}


@pytest.mark.parametrize(
    ("pods", "job", "problem"),
    [
        ([], {"conditions": [ENDED], "phase": "Succeeded"}, "the job has ended (Succeeded)"),
        ([], {"attempts": 0}, "no attempt has begun"),
        ([], {}, "it has no pod in attempt 1 yet"),
        ([build_pod(1, RUNNING)], {}, "it has no pod in attempt 1 yet"),
        ([build_pod(0, None, phase="Pending")], {}, "its pod is Pending"),
        ([build_pod(0, PULLING, phase="Pending")], {}, "its pod is Pending (ErrImagePull)"),
        ([build_pod(0, {"terminated": {"exitCode": 7}})], {}, "it has ended with exit code 7"),
    ],
)
def test_a_host_that_does_not_run_says_how_it_stands(
    pods: list[Manifest], job: dict[str, Any], problem: str
) -> None:
    with pytest.raises(HostNotRunningError) as caught:
        choose(pods, 0, **job)
    assert problem in caught.value.problem
    assert "fray status train" in caught.value.next_step


class Streams:
    """Streams of a test, in memory."""

    def __init__(self, *pieces: bytes, is_terminal: bool = False) -> None:
        self.is_terminal = is_terminal
        self._pieces = iter(pieces)
        self.output, self.errors = io.BytesIO(), io.BytesIO()
        self.write, self.write_error = self.output.write, self.errors.write

    def read(self) -> bytes:
        return next(self._pieces, b"")

    def watch_size(self, notify: Callable[[int, int], object]) -> None:
        notify(80, 24)


def run(
    script: Callable[[Container], Awaitable[None]], streams: Streams, *, rank: int = 0
) -> tuple[int, Container]:
    container = Container(script)

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            return await container.answer(request)
        if request.path == FRAYJOBS.path(namespace="ml", name="train"):
            return web.json_response(build_job())
        pods = [build_pod(each, RUNNING) for each in range(4)]
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})

    async def main() -> int:
        async with connect(handle) as api:
            access = Access(api, "https://server", "ml", api.close)
            return await run_command(access, JobId("train"), ["cat"], rank=rank, streams=streams)

    return asyncio.run(main()), container


def test_what_is_read_and_printed_goes_through_and_the_code_comes_back() -> None:
    async def cat(container: Container) -> None:
        while (heard := await container.hear()) != (Channel.CLOSE, bytes([Channel.INPUT])):
            await container.say(Channel.OUTPUT, heard[1].upper())
        await container.say(Channel.ERRORS, b"done")
        await container.end(failure(9))

    streams = Streams(b"one ", b"two")
    code, container = run(cat, streams, rank=3)
    assert code == 9
    assert streams.output.getvalue() == b"ONE TWO"
    assert streams.errors.getvalue() == b"done"
    assert container.requests[0].path.endswith("/pods/pod-1-3/exec")


def test_a_terminal_tells_its_size_first() -> None:
    async def shell(container: Container) -> None:
        while (await container.hear())[0] != Channel.SIZE:
            pass
        await container.end(SUCCESS)

    code, container = run(shell, Streams(is_terminal=True))
    assert code == 0
    assert (Channel.SIZE, b'{"Width": 80, "Height": 24}') in container.seen


def test_a_program_that_the_image_lacks_is_named() -> None:
    async def refuse(container: Container) -> None:
        await container.end(
            status_of(500, "InternalError", 'exec: "cat": executable file not found in $PATH')
        )

    with pytest.raises(CommandNotRunError, match=r"can't run 'cat'.*not found") as caught:
        run(refuse, Streams())
    assert caught.value.rank == 0


def test_a_rank_out_of_range_is_refused() -> None:
    async def never(container: Container) -> None:
        raise AssertionError

    with pytest.raises(LogsNotFoundError, match="no rank 4"):
        run(never, Streams(), rank=4)
