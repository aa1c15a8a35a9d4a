"""The FrayActors of a state directory, as tools see them."""

from __future__ import annotations

from datetime import UTC, datetime

from fray.kube.resources import FRAYACTORS
from fray.plan.actor_lifecycle import derive_ready
from fray.plan.status import build_conditions
from fray.runtime.actors.identity import Member
from fray.runtime.actors.local_objects import FileApi
from fray.runtime.actors.record import MemberRecord, read_record
from fray.wire.frayactor import ActorError, FrayActor, FrayActorStatus, MemberStatus

__all__ = ["list_actors"]


def list_actors(api: FileApi) -> list[FrayActor]:
    """Return all FrayActors, sorted by name, each with what its members tell.

    Nobody keeps their conditions here, so these begin to hold now.
    """
    found, now = [], datetime.now(UTC)
    for manifest in api.list_all(FRAYACTORS):
        actor = FrayActor.from_manifest(manifest)
        name, uid = actor.metadata.name, actor.metadata.uid or ""
        records = [
            read_record(api, Member(actor.spec.name, name, uid, index))
            for index in range(actor.spec.replicas)
        ]
        members = [_build_status(index, record) for index, record in enumerate(records)]
        status = FrayActorStatus(
            ready=f"{sum(member.ready for member in members)}/{len(members)}",
            restarts=sum(member.restarts for member in members),
            members=members,
            conditions=build_conditions(
                [derive_ready(members, suspended=False, ending=None)], [], generation=None, now=now
            ),
        )
        found.append(actor.model_copy(update={"status": status}))
    return found


def _build_status(index: int, record: MemberRecord | None) -> MemberStatus:
    if record is None:
        return MemberStatus(index=index)
    error = record.error
    return MemberStatus(
        index=index,
        pod_uid=record.pod_uid,
        start_number=record.start,
        ready=record.ready,
        failed=record.exhausted,
        ended=bool(record.ended),
        restarts=record.restarts,
        last_error=None
        if error is None
        else ActorError(type=error.type, message=error.message, traceback=error.traceback),
        message=record.ended or None,
    )
