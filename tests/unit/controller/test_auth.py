"""`fray-auth` is made where it is needed and replaced so that pods that see it late know each other."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, ServerError
from fray.kube.resources import SECRETS
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.auth import CHECK_SECONDS, AuthKeeper, wants_auth
from fray_operator.auth_keys import (
    OVERLAP_SECONDS,
    ROTATION,
    VALIDITY,
    AuthKeys,
    Step,
    apply_step,
    build_secret,
    derive_step,
    make_pair,
    parse_keys,
)
from fray_operator.lease import Lease, LeaseLostError
from fray_operator.store import Store
from tests.unit.controller.virtual_time import run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0
AGE = 3 * HOUR
"""At which keys are replaced here: a month of looks would take too long."""
FOR_EVER = 10_000_000.0


def job(
    name: str, namespace: str = "ml", *, workers: Manifest | None = None, status: Manifest | None = None
) -> Manifest:
    """A FrayJob as a watch reports it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "resourceVersion": "1"}
    spec = {"entrypoint": {"command": ["train"]}, **({} if workers is None else {"workers": workers})}
    made = {"apiVersion": "fray.dev/v1alpha1", "kind": "FrayJob", "metadata": metadata, "spec": spec}
    return made if status is None else {**made, "status": status}


MUCH = {"metadata": {"annotations": {"much": "x" * 100_000}}}
FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}
WITH_WORKERS = job("pool", workers={"replicas": 2})


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, False),
        ({"workers": None}, False),
        ({"workers": "garbage"}, False),
        ({"workers": {"replicas": 0, "maxReplicas": 0}}, False),
        ({"entrypoint": {"command": ["train"]}}, False),
        ({"entrypoint": "garbage"}, False),
        ({"entrypoint": {"callable": {"secretName": "train"}}}, True),
        ({"workers": {}}, True),
        ({"workers": {"replicas": 0}}, True),
        ({"workers": {"replicas": 0, "maxReplicas": 3}}, True),
    ],
)
def test_a_job_needs_it_if_it_has_a_callable_or_may_get_workers(spec: Manifest, *, wanted: bool) -> None:
    assert wants_auth({"spec": spec}) is wanted
    assert wants_auth({}) is False


# --- what is decided -------------------------------------------------------------------------------------


def settled(now: datetime = NOW) -> AuthKeys:
    return apply_step(None, Step.MAKE, now=now)


def step_of(keys: AuthKeys, *, now: datetime = NOW, unchanged: float = OVERLAP_SECONDS) -> Step:
    return derive_step(build_secret(keys, namespace="ml"), now=now, unchanged_seconds=unchanged)


def test_a_key_is_replaced_in_steps_that_late_pods_survive() -> None:
    now, first = NOW + ROTATION, settled()
    assert step_of(first) is Step.KEEP
    states, steps = [first], []
    while (step := step_of(states[-1], now=now)) is not Step.KEEP:
        assert step_of(states[-1], now=now, unchanged=OVERLAP_SECONDS - 1) is Step.KEEP
        steps.append(step)
        states.append(apply_step(states[-1], step, now=now))
        assert parse_keys(build_secret(states[-1], namespace="ml")) == states[-1]
    assert steps == [Step.PREPARE, Step.SWITCH, Step.FORGET]
    for early, late in itertools.pairwise(states):
        assert early.shown.certificate in late.accepted
        assert late.shown.certificate in early.accepted
    last = states[-1]
    assert last.shown != first.shown
    assert last.accepted == (last.shown.certificate,)
    assert last.secret == first.secret, "tokens derived from it stay"


@pytest.mark.parametrize("skew", [-VALIDITY, -timedelta(days=400), ROTATION, VALIDITY * 2])
def test_a_clock_that_is_wrong_costs_a_rotation_and_no_connection(skew: timedelta) -> None:
    assert step_of(settled(), now=NOW + skew) is Step.PREPARE


@pytest.mark.parametrize("skew", [-timedelta(hours=23), timedelta(hours=23)])
def test_a_clock_that_is_a_little_wrong_costs_nothing(skew: timedelta) -> None:
    assert step_of(settled(), now=NOW + skew) is Step.KEEP


def test_a_certificate_is_valid_for_clocks_that_are_years_apart() -> None:
    prepared = apply_step(settled(NOW - timedelta(days=3000)), Step.PREPARE, now=NOW + timedelta(days=3000))
    assert step_of(prepared) is Step.SWITCH


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def other_kind_of_key() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


OTHER = make_pair(NOW)
UNUSABLE: dict[str, Manifest] = {
    "no secret": {"pool.key": None},
    "a short secret": {"pool.key": encode(b"short")},
    "no certificate": {"tls.crt": None},
    "no private key": {"tls.key": None},
    "no base64": {"tls.crt": "%%%"},
    "no text": {"tls.crt": 7},
    "no PEM": {"tls.crt": encode(b"garbage")},
    "an empty key": {"tls.key": encode(b"")},
    "the key of another certificate": {"tls.key": encode(OTHER.private_key)},
    "another kind of key": {"tls.key": encode(other_kind_of_key())},
    "two certificates": {"tls.crt": encode(OTHER.certificate * 2)},
}


def spoil(keys: AuthKeys, changes: Manifest) -> Manifest:
    secret = build_secret(keys, namespace="ml")
    data = {**secret["data"], **changes}
    return {**secret, "data": {name: value for name, value in data.items() if value is not None}}


@pytest.mark.parametrize("changes", UNUSABLE.values(), ids=UNUSABLE)
def test_keys_that_cannot_be_used_are_made_anew_at_once(changes: Manifest) -> None:
    secret = spoil(settled(), changes)
    assert parse_keys(secret) is None
    assert derive_step(secret, now=NOW, unchanged_seconds=0.0) is Step.MAKE


@pytest.mark.parametrize("secret", [{}, {"data": None}, {"data": "garbage"}, {"data": {}}])
def test_a_secret_without_data_has_no_keys(secret: Manifest) -> None:
    assert derive_step(secret, now=NOW, unchanged_seconds=0.0) is Step.MAKE


REPAIRABLE: dict[str, Manifest] = {
    "nothing accepted": {"accepted.crt": None},
    "garbage accepted": {"accepted.crt": encode(b"garbage")},
    "only another accepted": {"accepted.crt": encode(OTHER.certificate)},
    "too many accepted": {"accepted.crt": encode(b"".join(make_pair(NOW).certificate for _ in range(4)))},
    "half a pair to come": {"next.crt": encode(OTHER.certificate)},
    "something else": {"notes": encode(b"mine")},
}


@pytest.mark.parametrize("changes", REPAIRABLE.values(), ids=REPAIRABLE)
def test_what_is_wrong_beside_the_shown_key_is_repaired_and_the_key_stays(changes: Manifest) -> None:
    keys = settled()
    secret = spoil(keys, changes)
    assert derive_step(secret, now=NOW, unchanged_seconds=0.0) is Step.REPAIR
    found = parse_keys(secret)
    assert found is not None
    repaired = apply_step(found, Step.REPAIR, now=NOW)
    assert (repaired.shown, repaired.secret) == (keys.shown, keys.secret)
    assert keys.shown.certificate in repaired.accepted
    assert len(repaired.accepted) <= 2
    assert step_of(repaired, unchanged=0.0) is Step.KEEP


def test_a_key_to_come_that_is_spoilt_is_never_shown() -> None:
    prepared = apply_step(settled(), Step.PREPARE, now=NOW)
    secret = spoil(prepared, {"next.key": encode(b"garbage")})
    assert derive_step(secret, now=NOW, unchanged_seconds=OVERLAP_SECONDS) is Step.REPAIR
    found = parse_keys(secret)
    assert found == replace(prepared, following=None)


# --- what is done ----------------------------------------------------------------------------------------


@pytest.fixture
def short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fray_operator.auth_keys.ROTATION", timedelta(seconds=AGE))
    monkeypatch.setattr("fray_operator.auth.LOOK_SECONDS", CHECK_SECONDS)


class Operator:
    """The keeper of one operator's process, with a clock of its own."""

    def __init__(
        self, server: MemoryServer, *jobs: Manifest, api: MemoryApi | None = None, skew: float = 0.0
    ) -> None:
        self._server, self._api, self._skew = server, api or MemoryApi(server), skew
        self._stores = {
            "FrayJob": Store(wants_keys=wants_auth),
            "FrayActor": Store(wants_keys=lambda _: True),
        }
        for each in jobs:
            self._stores[each["kind"]].put(each)
        self.lease: Lease | None = None

    async def keep(self, seconds: float) -> None:
        """Run for so long."""
        loop = asyncio.get_running_loop()
        # A Lease of its own: what happens if two of them lead is worse than what can happen.
        self.lease = Lease(
            MemoryApi(MemoryServer()), namespace="default", name="x", identity="a", seconds=FOR_EVER
        )
        await self.lease.acquire()
        keeper = AuthKeeper(
            self._api,
            self.lease,
            lambda: [
                namespace
                for store in self._stores.values()
                for namespace in store.find_namespaces_with_keys()
            ],
            now=lambda: NOW + timedelta(seconds=loop.time() + self._skew),
        )
        try:
            async with asyncio.timeout(seconds):
                await keeper.run()
        except TimeoutError:
            return


class Recorder:
    """All versions that the Secrets of a server had, with the times of their writing."""

    def __init__(self, server: MemoryServer) -> None:
        self.versions: list[tuple[float, AuthKeys | None]] = []
        server.listeners.append(self._note)

    def _note(self, resource: Any, _: Manifest | None, new: Manifest | None) -> None:
        if resource == SECRETS and new is not None:
            self.versions.append((asyncio.get_running_loop().time(), parse_keys(new)))

    def check(self) -> None:
        """No two pods that saw their Secrets within the overlap refuse each other."""
        for (before, early), (after, late) in itertools.pairwise(self.versions):
            assert early is not None
            assert late is not None
            assert after - before >= OVERLAP_SECONDS
            assert early.shown.certificate in late.accepted
            assert late.shown.certificate in early.accepted


def play(story: Callable[[MemoryServer], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(MemoryServer())

    run(main())


def keys_in(server: MemoryServer, namespace: str = "ml") -> AuthKeys:
    secret = server.find(SECRETS, "fray-auth", namespace=namespace)
    assert secret is not None
    found = parse_keys(secret)
    assert found is not None
    return found


def test_only_namespaces_that_have_a_job_with_workers_get_it() -> None:
    async def story(server: MemoryServer) -> None:
        jobs = [
            WITH_WORKERS,
            job("plain", "web"),
            job("large", "big", workers={"maxReplicas": 2, "podTemplate": MUCH}),
            job("finished", "old", workers={}, status=FINISHED),
        ]
        await Operator(server, *jobs).keep(HOUR)
        made = [secret["metadata"]["namespace"] for secret in server.all(SECRETS)]
        assert sorted(made) == ["big", "ml"]

    play(story)


def test_one_keeper_makes_the_secret_of_a_namespace_for_jobs_and_actors() -> None:
    async def story(server: MemoryServer) -> None:
        actors = [{**job("counter", namespace), "kind": "FrayActor"} for namespace in ("ml", "rl")]
        await Operator(server, WITH_WORKERS, *actors).keep(HOUR)
        assert sorted(secret["metadata"]["namespace"] for secret in server.all(SECRETS)) == ["ml", "rl"]
        # A keeper for each kind would look twice, and each would count the time since a change of its own.
        looks = [call for call in server.calls if call.method == "GET" and call.resource == SECRETS]
        assert len(looks) <= 2 * (HOUR / CHECK_SECONDS + 1)

    play(story)


@pytest.mark.usefixtures("short_lived")
def test_keys_are_rotated_for_as_long_as_there_are_jobs() -> None:
    async def story(server: MemoryServer) -> None:
        recorder = Recorder(server)
        await Operator(server, WITH_WORKERS).keep(2.5 * AGE)
        recorder.check()
        shown = {keys.shown.certificate for _, keys in recorder.versions if keys is not None}
        assert len(shown) == 3
        assert len(recorder.versions) == 1 + 2 * 3
        assert recorder.versions[0][0] == 0.0, "the first pods don't wait"

    play(story)


class KilledError(Exception):
    """The process died here."""


@pytest.mark.usefixtures("short_lived")
@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("answered", [False, True])
def test_an_operator_that_dies_at_any_write_leaves_what_the_next_one_goes_on_from(
    at: int, *, answered: bool
) -> None:
    writes = itertools.count(1)

    async def die(call: Call) -> None:
        if call.method in ("POST", "PUT") and next(writes) == at:
            raise KilledError

    async def story(server: MemoryServer) -> None:
        recorder = Recorder(server)
        api = MemoryApi(server, after=die) if answered else MemoryApi(server, before=die)
        with pytest.raises(KilledError):
            await Operator(server, WITH_WORKERS, api=api).keep(2 * AGE)
        await Operator(server, WITH_WORKERS).keep(1.5 * AGE)
        recorder.check()
        shown = {keys.shown.certificate for _, keys in recorder.versions if keys is not None}
        assert len(shown) >= 2
        assert len(keys_in(server).accepted) == 1

    play(story)


@pytest.mark.usefixtures("short_lived")
@pytest.mark.parametrize("skew", [0.0, -400 * 24 * HOUR, 400 * 24 * HOUR])
def test_two_operators_at_once_hurt_no_connection_whatever_their_clocks_say(skew: float) -> None:
    async def story(server: MemoryServer) -> None:
        recorder = Recorder(server)
        first, second = Operator(server, WITH_WORKERS), Operator(server, WITH_WORKERS, skew=skew)
        await asyncio.gather(first.keep(1.2 * AGE), second.keep(1.2 * AGE))
        recorder.check()
        assert len(recorder.versions) >= 4

    play(story)


def test_garbage_is_replaced_and_what_is_not_ours_is_left_alone() -> None:
    async def story(server: MemoryServer) -> None:
        for namespace, labels in (("ml", {"app.kubernetes.io/managed-by": "fray"}), ("web", {"mine": "yes"})):
            metadata = {"name": "fray-auth", "namespace": namespace, "labels": labels}
            server.create(SECRETS, {"metadata": metadata, "data": {"tls.crt": "garbage"}}, None)
        await Operator(server, WITH_WORKERS, job("pool", "web", workers={})).keep(HOUR)
        assert keys_in(server)
        theirs = server.find(SECRETS, "fray-auth", namespace="web")
        assert theirs is not None
        assert theirs["data"] == {"tls.crt": "garbage"}

    play(story)


def test_a_secret_that_is_deleted_is_made_again() -> None:
    async def story(server: MemoryServer) -> None:
        operator = asyncio.create_task(Operator(server, WITH_WORKERS).keep(HOUR))
        await asyncio.sleep(1.0)
        server.remove(SECRETS, "fray-auth", namespace="ml")
        await asyncio.sleep(CHECK_SECONDS + 2.0)
        assert keys_in(server)
        await operator

    play(story)


def test_a_namespace_that_refuses_holds_up_no_other_and_is_tried_again() -> None:
    refused = itertools.count(1)

    async def refuse(call: Call) -> None:
        if call.method == "POST" and (number := next(refused)) < 3:
            kind = ForbiddenError if number == 1 else ServerError
            raise kind("POST /secrets", 403, "Forbidden", "the namespace is being terminated")

    async def story(server: MemoryServer) -> None:
        jobs = [job("pool", name, workers={}) for name in ("a", "b", "c")]
        await Operator(server, *jobs, api=MemoryApi(server, before=refuse)).keep(5.0)
        assert len(server.all(SECRETS)) == 1
        await Operator(server, *jobs, api=MemoryApi(server, before=refuse)).keep(HOUR)
        assert len(server.all(SECRETS)) == 3

    play(story)


def test_nothing_is_written_without_the_lease() -> None:
    async def story(server: MemoryServer) -> None:
        operator = Operator(server, WITH_WORKERS)

        async def lose() -> None:
            await asyncio.sleep(0)
            assert operator.lease is not None
            await operator.lease.release()

        api = MemoryApi(server, before=lambda _: lose())
        operator = Operator(server, WITH_WORKERS, api=api)
        with pytest.raises(LeaseLostError):
            await operator.keep(HOUR)
        assert server.all(SECRETS) == []

    play(story)
