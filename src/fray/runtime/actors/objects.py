"""FrayActors as jobs make, find and delete them: by the API server alone, which lets one creator win.

A FrayActor's name is a hash of its scope and of what users call it, so that creating it is asking for the
name. The Secrets with its payload come after it and are its own; its pods wait for them.
"""

from __future__ import annotations

import base64
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from fray.actor_reasons import get_actor_row
from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    ActorUnavailableError,
    AmbiguousActorError,
    InvalidOptionError,
)
from fray.kube.errors import AlreadyExistsError, ApiError, NotFoundError
from fray.kube.objects import Manifest
from fray.kube.resources import FRAYACTORS, FRAYJOBS, SECRETS
from fray.payload.callables import Payload
from fray.payload.chunks import SecretPart, split_payload
from fray.runtime.actors.identity import DETACHED, LABEL, MOST_MEMBERS, Member, build_actor_name, split_member
from fray.runtime.actors.record import read_record
from fray.runtime.api.client import ObjectApi
from fray.vocabulary import (
    API_VERSION,
    FRAYACTOR_KIND,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    ConditionType,
)

__all__ = [
    "ActorObjects",
    "NewActor",
    "build_limits",
    "check_lives",
    "claim_actor",
    "count_members",
    "delete_actor",
    "find_end",
    "member_of",
    "round_idle",
]

GONE_SECONDS: Final = 120.0
"""How long a creator waits for an actor of its name that is being deleted."""
PAUSE: Final = 0.5
COPIED: Final = ("environment", "serviceAccountName")
"""What an actor has as the job that creates it."""

NO_JOB: Final[Manifest] = {"metadata": {}, "spec": {}}


@dataclass(frozen=True)
class NewActor:
    """An actor that is to be created."""

    label: str
    """What users call it."""
    payload: Payload | None
    """Its class; None: it is `hosted`."""
    detached: bool
    max_concurrency: int | None = None
    max_restarts: int | None = None
    max_task_retries: int | None = None
    resources: Mapping[str, str] | None = None
    preemptible: bool = True
    idle_timeout: float | None = None
    replicas: int = 1
    hosted: Mapping[str, str] | None = None
    """The process that serves it, as its FrayActor names it."""


class ActorObjects:
    """The FrayActors that a job sees: those of its root job, and detached ones.

    Parameters: the `api`; the names of the `job` and of its `root`, the job at the top of the tree, both
    empty outside of jobs; the number of the job's `attempt`, 0 where this process is of none; `pause` sleeps.
    All methods raise `fray.kube.errors.ApiError` where the server refuses or can't be reached.
    """

    def __init__(
        self,
        api: ObjectApi,
        *,
        job: str = "",
        root: str = "",
        attempt: int = 0,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.api = api
        self._job = job
        self._root = root
        self._attempt = attempt
        self._pause = pause

    def create(self, new: NewActor, *, get_if_exists: bool) -> tuple[Member, bool]:
        """Create an actor; see `claim_actor`. Raises `InvalidOptionError` for a name that is too long."""
        body, parts = self._build(new)
        return claim_actor(
            self.api,
            body,
            lambda made: [_build_secret(part, made) for part in parts],
            get_if_exists=get_if_exists,
            pause=self._pause,
        )

    def find(self, label: str) -> Member:
        """Return the actor that users call so: the root job's, else the detached one.

        `GROUP-INDEX` is a member of a group, unless an actor is called so. Raises `ActorNotFoundError`.
        """
        wanted = [(label, 0)]
        if (member := split_member(label)) is not None:
            wanted.append(member)
        scopes = (self._root_job()["metadata"]["uid"], DETACHED) if self._root else (DETACHED,)
        for (name, index), scope in product(wanted, scopes):
            found = _find_actor(self.api, build_actor_name(scope, name))
            if found is None or "deletionTimestamp" in found["metadata"]:
                continue
            if index < found["spec"].get("replicas", 1) and self._is_served(found):
                return replace(member_of(found, label), index=index)
        listed = _list_actors(self.api)
        for (name, index), scope in product(wanted, scopes):
            called = _select_called(listed, name, "" if scope is DETACHED else self._root, scope)
            for found in called:
                if index < found["spec"].get("replicas", 1):
                    if len(called) > 1:
                        raise AmbiguousActorError(name, tuple(each["metadata"]["name"] for each in called))
                    return replace(member_of(found, label), index=index)
        raise ActorNotFoundError(label)

    def _is_served(self, actor: Manifest) -> bool:
        """Return whether an actor that a process hosts has come so far; others are waited for by callers."""
        return "hosted" not in actor["spec"]["entrypoint"] or (
            read_record(self.api, member_of(actor, "")) is not None
        )

    def _root_job(self) -> Manifest:
        return self.api.get(FRAYJOBS, self._root, namespace=self.api.namespace)

    def _build(self, new: NewActor) -> tuple[Manifest, tuple[SecretPart, ...]]:
        """Return the FrayActor, and the contents of its Secrets. Raises `InvalidOptionError` for its name."""
        if not LABEL.fullmatch(new.label):
            legal = "1 to 253 characters, none of which is a control character"
            shown = new.label if len(new.label) < 64 else f"{new.label[:60]}..."
            raise InvalidOptionError("name of an actor", f"{shown!r} ({len(new.label)} characters)", legal)
        if new.replicas > MOST_MEMBERS:
            raise InvalidOptionError("count", str(new.replicas), f"1 to {MOST_MEMBERS} members of a group")
        job = self.api.get(FRAYJOBS, self._job, namespace=self.api.namespace) if self._job else NO_JOB
        root = self._root_job() if self._root else NO_JOB
        scope = DETACHED if new.detached else root["metadata"]["uid"]
        name = build_actor_name(scope, new.label)
        entrypoint, parts = _build_entrypoint(new, name)
        copied = {field: job["spec"][field] for field in COPIED if job["spec"].get(field)}
        spec: dict[str, Any] = {
            "name": new.label,
            "entrypoint": entrypoint,
            "lifetime": "detached" if new.detached else "job",
            "replicas": new.replicas,
            **(copied if new.hosted is None else {}),
        }
        metadata: dict[str, Any] = {"name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
        if self._attempt:
            creator = {LABEL_JOB_UID: job["metadata"]["uid"], LABEL_ATTEMPT: str(self._attempt)}
            metadata["labels"] |= creator
        if not new.detached:
            spec["rootJob"] = self._root
            owner = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, "name": self._root}
            metadata["ownerReferences"] = [{**owner, "uid": root["metadata"]["uid"]}]
        options = {
            "resources": dict(new.resources) if new.resources else None,
            "placement": None if new.preemptible else {"preemptible": False},
        }
        spec |= {field: value for field, value in options.items() if value is not None}
        spec |= build_limits(new.max_concurrency, new.max_restarts, new.max_task_retries, new.idle_timeout)
        body = {"apiVersion": API_VERSION, "kind": FRAYACTOR_KIND, "metadata": metadata, "spec": spec}
        return body, parts


def _build_entrypoint(new: NewActor, name: str) -> tuple[Manifest, tuple[SecretPart, ...]]:
    """Return what the members are instances of, and the contents of the Secrets that it names."""
    if new.payload is None:
        assert new.hosted is not None
        return {"hosted": dict(new.hosted)}, ()
    parts = split_payload(new.payload.data, secret_name=f"{name}-{secrets.token_hex(4)}")
    first, *more = (part.secret_name for part in parts)
    pickled: dict[str, Any] = {
        "secretName": first,
        "sha256": new.payload.sha256,
        "python": new.payload.stamp.python,
    }
    if more:
        pickled["moreSecrets"] = more
    return {"callable": pickled}, parts


def round_idle(idle_timeout: float | None) -> int | None:
    """Return the seconds of a FrayActor's `idleSeconds`; None: it never ends for that."""
    return None if idle_timeout is None or idle_timeout == math.inf else math.ceil(idle_timeout)


def build_limits(
    max_concurrency: int | None,
    max_restarts: int | None,
    max_task_retries: int | None,
    idle_timeout: float | None,
) -> Manifest:
    """Return the fields of a FrayActor's spec that limit its calls and its life; None leaves one out."""
    limits = {
        "maxConcurrency": max_concurrency,
        "maxRestarts": max_restarts,
        "maxTaskRetries": max_task_retries,
        "idleSeconds": round_idle(idle_timeout),
    }
    return {field: limit for field, limit in limits.items() if limit is not None}


def count_members(api: ObjectApi, member: Member) -> int:
    """Return how many members the actor of this one has; 1 where it is gone. Raises `ApiError`."""
    found = _find_actor(api, member.name)
    return 1 if found is None else int(found["spec"].get("replicas", 1))


def claim_actor(
    api: ObjectApi,
    body: Manifest,
    build_secrets: Callable[[Manifest], Sequence[Manifest]],
    *,
    get_if_exists: bool,
    pause: Callable[[float], object] = time.sleep,
) -> tuple[Member, bool]:
    """Create an actor; return it, and True; with `get_if_exists` maybe another's that lives, and False.

    `body` is the FrayActor, `build_secrets` gives the Secrets of one that was created. One of its name that
    has ended is deleted first, and so is, without `get_if_exists`, one that an earlier attempt of the same
    job has created.

    Raises `ActorExistsError`, and `ActorUnavailableError` if one of its name takes too long to go.
    """
    applied = _find_applied(api, body)
    if applied is None:
        return _claim(api, body, build_secrets, get_if_exists=get_if_exists, pause=pause)
    if get_if_exists:
        return member_of(applied, body["spec"]["name"]), False
    raise ActorExistsError(body["spec"]["name"])


def _claim(
    api: ObjectApi,
    body: Manifest,
    build_secrets: Callable[[Manifest], Sequence[Manifest]],
    *,
    get_if_exists: bool,
    pause: Callable[[float], object],
) -> tuple[Member, bool]:
    name, label = body["metadata"]["name"], body["spec"]["name"]
    give_up_at = time.monotonic() + GONE_SECONDS
    while True:
        try:
            # Again where the answer was lost: its mark says whether it is this one.
            made = api.create(FRAYACTORS, body, namespace=api.namespace, repeat=True)
        except AlreadyExistsError:
            found = _find_actor(api, name)
            if found is None:
                continue  # it has gone since then
            if _mark_of(found) == _mark_of(body):
                made = found
            elif "deletionTimestamp" in found["metadata"]:
                if time.monotonic() > give_up_at:
                    raise ActorUnavailableError(label, "an earlier one is still being deleted") from None
                pause(PAUSE)
                continue
            elif _has_ended(api, found) or (not get_if_exists and _is_older(found, body)):
                delete_actor(api, member_of(found, label))
                continue
            elif get_if_exists:
                return member_of(found, label), False
            else:
                raise ActorExistsError(label) from None
        try:
            for secret in build_secrets(made):
                _create_secret(api, secret)
        except ApiError:
            # Without them its pods would wait for ever.
            delete_actor(api, member_of(made, label))
            raise
        return member_of(made, label), True


def _find_actor(api: ObjectApi, name: str) -> Manifest | None:
    """Return the FrayActor of this name; None: there is none. Raises `ApiError`."""
    try:
        return api.get(FRAYACTORS, name, namespace=api.namespace)
    except NotFoundError:
        return None


def _find_applied(api: ObjectApi, body: Manifest) -> Manifest | None:
    """Return an actor that lives, and that programs call as they do this one, in its scope; else None."""
    if _find_actor(api, body["metadata"]["name"]) is not None:
        return None
    owners = body["metadata"].get("ownerReferences") or [{"uid": DETACHED}]
    label, root = body["spec"]["name"], body["spec"].get("rootJob", "")
    called = _select_called(_list_actors(api), label, root, owners[0]["uid"])
    return called[0] if called else None


def _list_actors(api: ObjectApi) -> list[Manifest]:
    """Return all FrayActors of the namespace. Raises `ApiError`."""
    return [actor for page in api.list_pages(FRAYACTORS, namespace=api.namespace) for actor in page.items]


def _select_called(actors: Sequence[Manifest], label: str, root: str, uid: str) -> list[Manifest]:
    """Return the living actors of a scope that programs call so, but for the one that programs create.

    People who apply a FrayActor name it as they like. `root` is the job of the scope and `uid` that job's,
    empty and `DETACHED` for detached ones.
    """

    def is_in_scope(actor: Manifest) -> bool:
        if (actor["spec"].get("rootJob") or "") != root:
            return False
        owners = actor["metadata"].get("ownerReferences") or ()
        jobs = [owner["uid"] for owner in owners if owner["kind"] == FRAYJOB_KIND]
        return not root or not jobs or uid in jobs

    return [
        actor
        for actor in actors
        if actor["spec"]["name"] == label
        and actor["metadata"]["name"] != build_actor_name(uid, label)
        and is_in_scope(actor)
        and "deletionTimestamp" not in actor["metadata"]
        and find_end(actor) is None
    ]


def _create_secret(api: ObjectApi, secret: Manifest) -> None:
    try:
        api.create(SECRETS, secret, namespace=api.namespace, repeat=True)
    except AlreadyExistsError:
        return  # made by an earlier try whose answer was lost: nobody else has the name


def _build_secret(part: SecretPart, actor: Manifest) -> Manifest:
    metadata = actor["metadata"]
    owner = {
        "apiVersion": API_VERSION,
        "kind": FRAYACTOR_KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": part.secret_name,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {part.key: base64.b64encode(part.data).decode()},
    }


def delete_actor(api: ObjectApi, member: Member) -> None:
    """Delete an actor, with all that is its own; one that is gone is fine. Raises `ApiError`."""
    api.delete(FRAYACTORS, member.name, namespace=api.namespace, uid=member.uid)


def find_end(actor: Manifest) -> str | None:
    """Return why an actor has ended for good, or is about to; None while it lives."""
    for each in (actor.get("status") or {}).get("conditions") or ():
        finished = each.get("type") == ConditionType.FINISHED and each.get("status") == "True"
        if finished or get_actor_row(each.get("reason")).ends:
            return str(each.get("message"))
    return "spec.stopped is true" if actor["spec"].get("stopped") else None


def _has_ended(api: ObjectApi, actor: Manifest) -> bool:
    """Return whether an actor has ended, or no member of it can be called: their constructors failed."""
    if find_end(actor) is not None:
        return True
    member, count = member_of(actor, ""), actor["spec"].get("replicas", 1)
    records = (read_record(api, replace(member, index=index)) for index in range(count))
    return count > 0 and all(
        record is not None
        and (record.exhausted or bool(record.ended) or record.gave_up(member.max_task_retries))
        for record in records
    )


def _is_older(found: Manifest, new: Manifest) -> bool:
    """Return whether an actor was created by an earlier attempt of the job that creates this one."""
    before, now = (each["metadata"].get("labels") or {} for each in (found, new))
    if LABEL_ATTEMPT not in now or before.get(LABEL_JOB_UID) != now[LABEL_JOB_UID]:
        return False
    number = before.get(LABEL_ATTEMPT, "")
    return number.isascii() and number.isdigit() and int(number) < int(now[LABEL_ATTEMPT])


def _mark_of(actor: Manifest) -> tuple[str | None, str | None]:
    """Return the names of an actor's first Secret and of its server, which no other creator has chosen."""
    entrypoint = actor["spec"].get("entrypoint") or {}
    return entrypoint.get("callable", {}).get("secretName"), entrypoint.get("hosted", {}).get("server")


def member_of(actor: Manifest, label: str) -> Member:
    """Return the first member of a FrayActor, which users call `label`.

    One that a process hosts has one incarnation, which is known: nobody waits for the next.
    """
    metadata, retries = actor["metadata"], actor["spec"].get("maxTaskRetries") or 0
    member = Member(label, metadata["name"], metadata["uid"], max_task_retries=retries)
    hosted = actor["spec"]["entrypoint"].get("hosted")
    if hosted is None:
        return member
    incarnation = member.build_incarnation(hosted["podUid"], 1)
    return replace(member, incarnation=incarnation, host=hosted["pod"])


def check_lives(api: ObjectApi, member: Member) -> Manifest:
    """Return what the status of its FrayActor says of a member, which may be nothing.

    Raises `ActorDiedError` if the FrayActor is gone or has ended, and `ApiError`. Also if the member was
    given up: of one on several hosts the operator says so, which would make its next pods.
    """
    found = _find_actor(api, member.name) or {"metadata": {}}
    metadata = found["metadata"]
    if metadata.get("uid") != member.uid or metadata.get("deletionTimestamp"):
        gone = f"it was deleted, or its host {member.host} has ended" if member.host else "it was deleted"
        raise ActorDiedError(member.label, gone)
    if (end := find_end(found)) is not None:
        raise ActorDiedError(member.label, f"it has ended: {end}")
    for each in (found.get("status") or {}).get("members") or ():
        status: Manifest = each
        if status.get("index") != member.index:
            continue
        if status.get("attempt") and status.get("failed"):
            error = status.get("lastError")
            story = (f"{error['type']}: {error.get('message', '')}",) if error else ()
            raise ActorDiedError(member.label, "it was started as often as it may be", story)
        return status
    return {}
