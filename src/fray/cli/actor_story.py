"""What is shown of FrayActors: the table of members, and the story of one. Pure; `story` has that of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fray.cli.columns import format_age, format_columns
from fray.cli.story import Line, Tone
from fray.plan.timestamps import parse_time
from fray.vocabulary import ConditionType

if TYPE_CHECKING:
    from fray.wire.frayactor import FrayActor, MemberStatus

__all__ = ["describe_actor", "describe_job_actors", "format_actor_table"]

TRACEBACK_LINES = 12
HEADINGS = ("NAME", "ACTOR", "MEMBER", "STATE", "START", "RESTARTS", "NODE", "AGE")


def format_actor_table(actors: Sequence[FrayActor], *, now: datetime, width: int | None = None) -> list[Line]:
    """Return one line for each member of each actor, under a line of headings; at most `width` characters.

    START is the number of the process in the member's pod. An actor without members has a line, too.
    """
    rows, tones = [HEADINGS], [Tone.HEADING]
    for actor in actors:
        fixed = (actor.metadata.name, actor.spec.name)
        for member in actor.status.members:
            state, tone = _describe_state(actor, member)
            counts = (str(member.start_number or ""), str(member.restarts), member.node or "")
            rows.append((*fixed, str(member.index), state, *counts, _age(actor, now)))
            tones.append(tone)
        if not actor.status.members:
            state, tone = _describe_state(actor, None)
            rows.append((*fixed, "", state, "", "", "", _age(actor, now)))
            tones.append(tone)
    lines = format_columns(rows, width=width)
    return [Line(line, tone) for line, tone in zip(lines, tones, strict=True)]


def describe_actor(actor: FrayActor, *, now: datetime) -> list[Line]:
    """Return the whole story of an actor: where it stands, its conditions, and member by member."""
    status, spec, name = actor.status, actor.spec, actor.metadata.name
    state, tone = _describe_state(actor, None)
    hosted = spec.entrypoint.hosted
    lifetime = f"ends with job {spec.root_job}" if spec.root_job else "until it is deleted or stopped"
    if spec.idle_seconds:
        lifetime += f", or after {spec.idle_seconds} s without a call"
    facts = [
        ("  called", spec.name),
        ("  lifetime", lifetime),
        *([] if hosted is None else [("  hosted by", f"a process of pod {hosted.pod}, with which it ends")]),
        ("  members", f"{status.ready or '0/0'} ready, {status.restarts} restarts"),
        ("  age", _age(actor, now)),
    ]
    conditions = [
        (f"  {c.type}", c.status, c.reason, c.message.partition("\n")[0]) for c in status.conditions
    ]
    return [
        Line(f"{name}   {state}", tone),
        *map(Line, format_columns(facts)),
        Line(""),
        Line("Conditions", Tone.HEADING),
        *map(Line, format_columns(conditions)),
        Line(""),
        Line("Members", Tone.HEADING),
        *(line for member in status.members for line in _describe_member(actor, member)),
        Line(""),
        Line(f"next: fray actors logs -f {name}, or fray actors delete {name}", Tone.QUIET),
    ]


def describe_job_actors(actors: Sequence[FrayActor], *, now: datetime) -> list[Line]:
    """Return the actors of a job as a part of its story; nothing where it has none."""
    if not actors:
        return []
    table = format_actor_table(actors, now=now)
    rest = [Line(f"  {line.text}", line.tone) for line in table[1:]]
    return [Line(""), Line("Actors", Tone.HEADING), Line(f"  {table[0].text}", Tone.QUIET), *rest]


def _describe_member(actor: FrayActor, member: MemberStatus) -> list[Line]:
    state, tone = _describe_state(actor, member)
    place = f"pod {member.pod}" if member.pod else "no pod"
    if member.node:
        place += f" on {member.node}"
    start = f", start {member.start_number}" if member.start_number else ""
    lines = [Line(f"  {member.index}   {state}   {place}{start}, {member.restarts} restarts", tone)]
    if member.message:
        lines.append(Line(f"      {member.message}"))
    if (error := member.last_error) is not None:
        lines.append(Line(f"      last error: {error.type}: {error.message}"))
        traceback = error.traceback.splitlines()[-TRACEBACK_LINES:]
        lines += [Line(f"        {line}", Tone.QUIET) for line in traceback]
    return lines


def _describe_state(actor: FrayActor, member: MemberStatus | None) -> tuple[str, Tone]:
    """Return the state of a member, or of the whole actor."""
    true = {condition.type for condition in actor.status.conditions if condition.status == "True"}
    if ConditionType.FINISHED in true:
        return "Finished", Tone.QUIET
    if ConditionType.SUSPENDED in true:
        return "Suspended", Tone.BUSY
    members = actor.status.members if member is None else [member]
    if any(each.failed for each in members):
        return "Failed", Tone.BAD
    if members and all(each.ended for each in members):
        return "Ended", Tone.QUIET
    if all(each.ready or each.ended for each in members) if members else ConditionType.READY in true:
        return "Ready", Tone.GOOD
    return "Starting", Tone.BUSY


def _age(actor: FrayActor, now: datetime) -> str:
    created = actor.metadata.creation_timestamp
    return format_age((now - parse_time(created)).total_seconds()) if created else ""
