"""How a caller reaches a member of an actor: by what its pod has told, and by a pool that it joins.

No DNS: the record has the address, and the pool's token says whether it is the incarnation that is meant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from fray.errors import ActorDiedError, ActorUnavailableError, FrayError, OtherPoolError, TransportError
from fray.kube.errors import ApiError
from fray.runtime.actors.identity import Member
from fray.runtime.actors.objects import check_lives
from fray.runtime.actors.record import LastError, MemberRecord, RecordApi, read_record
from fray.runtime.api.client import ObjectApi
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.pod import read_objects_address
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.transport.settings import TransportSettings
from fray.vocabulary import ENV_POOL_KEY

__all__ = ["SETTINGS", "PodReach", "Reach", "describe_end", "describe_loss", "join_member", "locate"]

T = TypeVar("T")
START_SECONDS: Final = 600.0
"""How long a caller waits for an actor that isn't ready: its pod may need a new node, and an image."""
REACH_SECONDS: Final = 3.0
"""How long it tries to reach an incarnation that it knows."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
SETTINGS: Final = TransportSettings(handshake_seconds=4.0, silence_seconds=4)
"""Kernels answer for processes that stand still, so that 4 s of silence mean a lost host or network."""
STORY_LINES: Final = 12
"""Of a traceback, its last ones."""


class Reach(Protocol):
    """How a process reaches actors. It can be pickled where handles are to be valid elsewhere, too."""

    @property
    def api(self) -> ObjectApi:
        """Tells where members are; its methods raise `ApiError`."""
        ...

    def start(self) -> None:
        """Start members that no process runs, where nobody else does. Called again and again."""
        ...

    def join(self, member: Member, address: Address) -> JoinedPool:
        """Join the pool of a member that listens there. Raises `ApiError` and `TransportError`."""
        ...


class PodReach:
    """That of a pod: members are reached at the addresses of their pods.

    Parameters: the `api`; the variables of this process, with the directory of its keys.
    """

    def __init__(self, api: RecordApi, environ: Mapping[str, str]) -> None:
        self.api = api
        self._environ = environ

    def start(self) -> None:
        """Do nothing: the operator does it."""

    def join(self, member: Member, address: Address) -> JoinedPool:  # noqa: ARG002 - its address is all
        """Join the pool of a member that listens there. Raises `TransportError`."""
        # In the first job of a namespace the keys may come after the pod has begun.
        key = TransportKey.load(Path(self._environ[ENV_POOL_KEY]))
        # Any port: those of the job's own pool are open to its own pods only.
        objects = replace(read_objects_address(self._environ), port=0, last=0)
        offer = ClientHost(open_store(None, self._environ), objects)
        return JoinedPool(address, key, offer, patience=0.0, settings=SETTINGS, environ=self._environ)


def join_member(
    reach: Reach,
    member: Member,
    *,
    is_over: Callable[[str], bool] = lambda _: False,
    find: Callable[[str], T | None] = lambda _: None,
    deadline: float | None = None,
) -> JoinedPool | T:
    """Return the pool of a member's present incarnation, or of the one that `member` names, once it's ready.

    It isn't one that `is_over`, as is known although its record may not say so yet. What `find` has for an
    incarnation is returned in place of its pool, which is not joined then. `deadline` is a time of
    `time.monotonic`.

    Raises `ActorDiedError` if that one has ended, the FrayActor is gone, or its constructor has raised;
    `ActorUnavailableError` if it can't be reached: for 3 s where `member` names it, else for 10 minutes;
    `TimeoutError`, which says why, if the `deadline` comes earlier.
    """
    give_up_at = time.monotonic() + (REACH_SECONDS if member.incarnation else START_SECONDS)
    hurried = False
    if deadline is not None and deadline < give_up_at:
        give_up_at, hurried = deadline, True
    pause = FIRST_PAUSE
    problem: FrayError | None = None
    while True:
        try:
            reach.start()
            record = locate(reach.api, member, is_over=is_over)
            if record is not None:
                found = find(member.build_incarnation(record.pod_uid, record.start))
                return _join(reach, member, record) if found is None else found
        except (ApiError, OtherPoolError, TransportError) as error:
            problem = error
        left = give_up_at - time.monotonic()
        if left <= (0 if hurried else pause):
            reason = "it isn't ready" if problem is None else problem.message
            if hurried:
                raise TimeoutError(f"actor {member.label!r} isn't available: {reason}") from problem
            raise ActorUnavailableError(member.label, reason, read_story(reach.api, member)) from problem
        time.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE, 2 * pause)


def locate(
    api: ObjectApi, member: Member, *, is_over: Callable[[str], bool] = lambda _: False
) -> MemberRecord | None:
    """Return the record of the incarnation that is meant, if it is ready; None: not yet, or it `is_over`.

    Raises `ActorDiedError` if it has ended or will never be there, and `ApiError`.
    """
    check_lives(api, member)
    record = read_record(api, member)
    if record is None:
        return None
    story = describe_error(record.error)
    if record.ended:
        raise ActorDiedError(member.label, record.ended, story)
    if record.exhausted:
        raise ActorDiedError(member.label, "it was started as often as it may be", story)
    incarnation = member.build_incarnation(record.pod_uid, record.start)
    if member.incarnation not in ("", incarnation):
        raise ActorDiedError(member.label, "its process was started anew, and what it had is lost", story)
    if record.ready:
        return None if is_over(incarnation) else record
    if member.incarnation:
        raise ActorDiedError(member.label, "its process has ended", story)
    if record.gave_up(member.max_task_retries):
        raise ActorDiedError(member.label, "its constructor failed", story)
    return None


def describe_end(api: ObjectApi, member: Member, died: ActorDiedError) -> ActorDiedError:
    """Return the error of calls that the member's own head has told of its end: maybe the actor is over.

    What the member's record tells besides, such as the host, stands behind it.
    """
    story = died.story
    try:
        check_lives(api, member)
    except ActorDiedError as known:
        if not member.host:  # else its end is why it was deleted
            return ActorDiedError(member.label, known.reason, (*known.story, *died.story))
    except ApiError:
        pass  # what is known is true all the same
    else:
        with suppress(ApiError):
            record = read_record(api, member)
            told = None if record is None or record.ready else record.error
            if told is not None and told.message not in died.reason:
                story = (*story, *describe_error(told))
    return ActorDiedError(member.label, died.reason, story)


def describe_loss(api: ObjectApi, member: Member) -> ActorDiedError | ActorUnavailableError:
    """Return what becomes of calls whose connection was lost: the member's end, where it is known."""
    try:
        locate(api, member)
    except ActorDiedError as known:
        return known
    except ApiError as error:
        return ActorUnavailableError(member.label, f"the connection to it was lost, and {error.message}")
    return ActorUnavailableError(member.label, "the connection to it was lost", read_story(api, member))


def read_story(api: ObjectApi, member: Member) -> tuple[str, ...]:
    """Return what the operator says of a member: of its pod and its node, and its last error."""
    with suppress(ActorDiedError, ApiError):
        status = check_lives(api, member)
        error = status.get("lastError")
        last = (
            LastError(error["type"], error.get("message", ""), error.get("traceback", "")) if error else None
        )
        return (*filter(None, [status.get("message")]), *describe_error(last))
    return ()


def describe_error(error: LastError | None) -> tuple[str, ...]:
    """Return an error of a member as the lines of a story."""
    if error is None:
        return ()
    return (f"{error.type}: {error.message}", *error.traceback.splitlines()[-STORY_LINES:])


def _join(reach: Reach, member: Member, record: MemberRecord) -> JoinedPool:
    """Join the pool of the incarnation of a record. Raises `OtherPoolError` if another one listens there."""
    host = record.pod or member.host
    pool = reach.join(replace(member, host=host), Address.parse(record.address))
    if pool.token == member.build_incarnation(record.pod_uid, record.start):
        return pool
    pool.stop()
    raise OtherPoolError(record.address)
