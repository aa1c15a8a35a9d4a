"""Credentials that can't be read or aren't taken: an error of the caller's account, never of the object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from fray.errors import SurroundingsError
from fray.kube.api import Manifest
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration
from fray.kube.errors import ForbiddenError, RefusedError, UnauthorizedError
from fray.kube.resources import LEASES, Resource
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryApi, MemoryServer
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.lease import Lease
from tests.unit.kube import scripted_server
from tests.unit.kube.scripted_server import answer, connect, serve, status_of

LEASE: Manifest = {"kind": "Lease", "metadata": {"name": "a", "namespace": "default"}}


class Account:
    """A pod's account, whose token is read anew for every request."""

    def __init__(self, directory: Path) -> None:
        self.token = directory / "token"
        self.token.write_text("first")
        certificate = directory / "ca.crt"
        certificate.write_text("not looked at")
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        self._loader = InClusterConfigLoader(str(self.token), str(certificate), environ=environ)
        self.configuration = Configuration()
        self._loader.load_and_set(self.configuration)
        self.configuration.ssl_ca_cert = None

    def age(self) -> None:
        """Let the minute pass for which a token isn't read again."""
        self._loader.token_expires_at = datetime.min

    def move(self, url: str) -> None:
        """Have the API server somewhere else."""
        self._loader.host = self.configuration.host = url


pytestmark = pytest.mark.usefixtures("brief")


def as_account(
    account: Account, test: Callable[[KubernetesApi, list[str]], Awaitable[None]], **options: object
) -> None:
    """Run a test with a client of this account and the credentials that the server is shown."""
    shown: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization", ""))
        return web.json_response(LEASE)

    async def main() -> None:
        async with serve(handle) as url:
            account.move(url)
            async with scripted_server.KubernetesApi(account.configuration, **options) as api:  # type: ignore[arg-type]
                await test(api, shown)

    asyncio.run(main())


def vanish(token: Path) -> None:
    token.unlink()


def empty(token: Path) -> None:
    token.write_text("")


def garble(token: Path) -> None:
    token.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [(vanish, FileNotFoundError), (empty, ConfigException), (garble, UnicodeDecodeError)],
    ids=["gone", "empty", "not text"],
)
def test_a_token_that_cant_be_read_is_told_and_read_again_next_time(
    tmp_path: Path, spoil: Callable[[Path], None], cause: type[Exception]
) -> None:
    account = Account(tmp_path)
    counted: list[tuple[str, Resource, int]] = []

    async def main(api: KubernetesApi, shown: list[str]) -> None:
        assert await api.get(LEASES, "a", namespace="default") == LEASE
        spoil(account.token)
        account.age()
        for _ in range(2):
            with pytest.raises(UnauthorizedError) as unread:
                await api.get(LEASES, "a", namespace="default")
            assert isinstance(unread.value.__cause__, cause)
            assert (unread.value.status, unread.value.reason) == (0, cause.__name__)
        with pytest.raises(UnauthorizedError):
            await anext(api.watch(LEASES, resource_version="1"))
        account.token.write_text("second")
        await api.get(LEASES, "a", namespace="default")
        assert shown == ["bearer first", "bearer second"]

    as_account(account, main, on_answer=lambda *call: counted.append(call))
    methods = [(method, status) for method, _, status in counted]
    assert methods == [("GET", 200), ("GET", 0), ("GET", 0), ("WATCH", 0), ("GET", 200)]


def test_a_token_file_may_end_with_a_line_break(tmp_path: Path) -> None:
    account = Account(tmp_path)
    account.token.write_text("second\n")
    account.age()

    async def main(api: KubernetesApi, shown: list[str]) -> None:
        await api.get(LEASES, "a", namespace="default")
        assert shown == ["bearer second"]

    as_account(account, main)


@pytest.mark.parametrize("token", ["a\nX-Other: b", "a\x00", "a\u2019"], ids=repr)
def test_a_token_that_no_header_can_hold_is_never_shown(tmp_path: Path, token: str) -> None:
    account = Account(tmp_path)
    account.token.write_text(token)
    account.age()

    async def main(api: KubernetesApi, shown: list[str]) -> None:
        with pytest.raises(UnauthorizedError) as refused:
            await api.get(LEASES, "a", namespace="default")
        assert token not in str(refused.value)
        assert not shown

    as_account(account, main)


def test_unaccepted_credentials_are_the_surroundings_and_say_where_to_look() -> None:
    error = UnauthorizedError("GET /x", 401, "Unauthorized", "Unauthorized")
    assert isinstance(error, SurroundingsError)
    assert not isinstance(error, RefusedError | ForbiddenError)
    assert str(error).startswith("GET /x: 401 Unauthorized: Unauthorized\nLook at the account's token")


def create_attempt(status: int, reason: str) -> object:
    """Have the operator create an attempt's JobSet, which is answered so."""
    posted: list[Manifest] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        posted.append(json.loads(await request.read()))
        return await answer(status, status_of(status, reason))(request)

    async def main() -> object:
        lease = Lease(MemoryApi(MemoryServer()), namespace="a", name="b", identity="c", seconds=3600)
        await lease.acquire()
        async with connect(handle) as api:
            actor = Actor(api, lease, settings=PlanSettings(), remember=lambda *_: None)
            body = {
                "metadata": {"name": "train", "namespace": "default", "uid": "1"},
                "spec": {"entrypoint": {"command": ["train"]}},
            }
            return await actor.create_attempt(FrayJob.from_manifest(body), 1)

    try:
        return asyncio.run(main())
    finally:
        assert [body["kind"] for body in posted] == ["JobSet"]


def test_an_operator_that_isnt_known_tries_again_and_blames_no_job() -> None:
    with pytest.raises(UnauthorizedError):
        create_attempt(401, "Unauthorized")


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (422, "Invalid")])
def test_an_attempt_that_is_refused_is_told(status: int, reason: str) -> None:
    refusal = create_attempt(status, reason)
    assert "said so" in str(refusal)
