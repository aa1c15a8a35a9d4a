"""What names an actor: its FrayActor, its member's pod, and its incarnation. Pure.

Clients and pods share it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fray.errors import SettingError
from fray.vocabulary import (
    ENV_ACTOR_INDEX,
    ENV_ACTOR_MAX_RESTARTS,
    ENV_ACTOR_NAME,
    ENV_ACTOR_POD_UID,
    ENV_ACTOR_UID,
    ENV_HOST,
    ENV_HOSTS_PER_SLICE,
    ENV_POD_IP,
    ENV_POD_NAME,
    ENV_POOL_KEY,
)

__all__ = [
    "ACTOR",
    "DETACHED",
    "LABEL",
    "MOST_MEMBERS",
    "ActorPod",
    "Member",
    "build_actor_name",
    "build_part_name",
    "build_place",
    "is_own_label",
    "read_host",
    "read_hosts",
    "split_member",
]

ACTOR: Final = "actor"
"""The name of the one actor in the pool of a member's pod."""
DETACHED: Final = "detached"
"""The scope of actors that belong to no job."""
LABEL: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,253}")
"""Characters of what users call an actor, as the schema of FrayActors has it."""
MEMBER: Final = re.compile(r"(?s)(?P<group>.+)-(?P<index>0|[1-9][0-9]{0,2})")
MOST_MEMBERS: Final = 256
"""Of a group, as the schema of FrayActors has it."""
SLUG_LENGTH: Final = 30
DIGEST_LENGTH: Final = 16
START_LENGTH: Final = 52 - 1 - DIGEST_LENGTH
"""What a FrayActor's longest name leaves to people (`fray.wire.rules`)."""


def build_actor_name(scope: str, name: str) -> str:
    """Return the name of the FrayActor that users call `name`: the same for each who looks for it.

    `scope` is the uid of the root job, or `DETACHED`. Any text is a name; what is left of it is for people.
    """
    digest = hashlib.sha256(f"{scope}\0{name}".encode()).hexdigest()[:DIGEST_LENGTH]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:SLUG_LENGTH].strip("-")
    # Some objects' names must begin with a letter.
    start = slug if slug[:1].isalpha() else f"actor-{slug}".strip("-")
    return f"{start[:START_LENGTH].strip('-')}-{digest}"


def split_member(label: str) -> tuple[str, int] | None:
    """Return the group and the index of `GROUP-INDEX`, which may be a member's name; None: it is none."""
    found = MEMBER.fullmatch(label)
    return None if found is None else (found["group"], int(found["index"]))


def build_part_name(host: int) -> str:
    """Return the name of a host's part of the actor, in the pool of a member that is on several hosts."""
    return f"{ACTOR}-{host}"


def build_place(host: int) -> dict[str, float]:
    """Return the resource that only this host of a member offers: what takes it runs there."""
    return {f"fray-host-{host}": 1.0}


def is_own_label(label: str) -> bool:
    """Return whether a name in the pool of a member's pod is that of the actor, or of its part on a host."""
    return re.fullmatch(rf"{ACTOR}(-[0-9]+)?", label) is not None


def read_hosts(environ: Mapping[str, str]) -> int:
    """Return on how many hosts the member of this pod is; raises `SettingError`."""
    return _read_count(environ, ENV_HOSTS_PER_SLICE) if environ.get(ENV_HOSTS_PER_SLICE) else 1


def read_host(environ: Mapping[str, str]) -> int:
    """Return which of them this pod is; raises `SettingError`."""
    return _read_count(environ, ENV_HOST) if environ.get(ENV_HOST) else 0


@dataclass(frozen=True)
class Member:
    """One member of a FrayActor: what a handle names.

    `incarnation` is the run of its process that is meant; empty: the first one that is reached.
    """

    label: str
    """What users call the actor."""
    name: str
    uid: str
    index: int = 0
    incarnation: str = ""
    max_task_retries: int = 0
    """How often calls that were lost with it are made again, and a constructor that raised; -1: no limit."""
    host: str = ""
    """The pod of the process that hosts it; empty: it has a pod of its own."""

    @property
    def record_name(self) -> str:
        """The ConfigMap in which the member's pod tells how it fares."""
        return f"{self.name}-{self.index}"

    @property
    def pod_name(self) -> str:
        """The member's pod; one of its own is called so by a StatefulSet."""
        return self.host or f"{self.name}-{self.index}"

    def build_incarnation(self, pod_uid: str, start: int) -> str:
        """Return the name of an incarnation, which no other one of any actor has."""
        return f"{self.uid}-{self.index}-{pod_uid}-{start}"


@dataclass(frozen=True)
class ActorPod:
    """The pod of a member, by its variables."""

    member: Member
    pod_uid: str
    address: str
    """The pod's IP address."""
    key: Path
    max_restarts: int | None = None
    """None: no limit."""
    name: str = ""
    """Its name, where it can't be told from the actor's."""
    hosts: int = 1
    """On how many hosts the member is; this is the pod of the first."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ActorPod:
        """Return what `environ` says; raises `SettingError` for a variable that is missing or wrong."""
        name = _read(environ, ENV_ACTOR_NAME)
        restarts = environ.get(ENV_ACTOR_MAX_RESTARTS)
        return cls(
            Member(name, name, _read(environ, ENV_ACTOR_UID), _read_count(environ, ENV_ACTOR_INDEX)),
            _read(environ, ENV_ACTOR_POD_UID),
            _read(environ, ENV_POD_IP),
            Path(_read(environ, ENV_POOL_KEY)),
            _read_count(environ, ENV_ACTOR_MAX_RESTARTS) if restarts else None,
            environ.get(ENV_POD_NAME, ""),
            read_hosts(environ),
        )


def _read(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable)
    if not value:
        raise SettingError(variable, "is not set, as it is in each pod of an actor")
    return value


def _read_count(environ: Mapping[str, str], variable: str) -> int:
    value = _read(environ, variable)
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise SettingError(variable, f"is {value!r}, not a whole number")
    return int(value)
