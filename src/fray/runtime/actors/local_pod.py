"""A member of a named actor on this machine: its process takes the place of a pod.

It holds the member's lock as long as it lives, supervises the actor as in a pod, and ends when the FrayActor
is deleted or its root job has ended. Who finds a lock that nobody holds starts the next one: programs
outside of jobs, and the runner of a root job for all that the jobs below it need, since what a job's process
starts ends with that process.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fray.kube.errors import NotFoundError
from fray.kube.objects import Manifest
from fray.kube.resources import FRAYACTORS, FRAYJOBS, SECRETS
from fray.runtime.actors.identity import ActorPod, Member
from fray.runtime.actors.local_objects import FileApi
from fray.runtime.actors.pod import Supervisor
from fray.runtime.actors.record import RecordWriter, read_record
from fray.runtime.file_locks import is_locked, lock_beside_readers
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.settings import Settings
from fray.vocabulary import (
    ENV_ACTOR_IDLE_SECONDS,
    ENV_ACTOR_INDEX,
    ENV_ACTOR_LABEL,
    ENV_ACTOR_MAX_CONCURRENCY,
    ENV_ACTOR_MAX_RESTARTS,
    ENV_ACTOR_NAME,
    ENV_ACTOR_PAYLOAD,
    ENV_ACTOR_PAYLOAD_PYTHON,
    ENV_ACTOR_PAYLOAD_SHA256,
    ENV_ACTOR_POD_UID,
    ENV_ACTOR_UID,
    ENV_POD_IP,
    ENV_POOL_KEY,
    ENV_POOL_OBJECTS,
    ENV_ROOT_JOB,
)

__all__ = ["LocalReach", "find_log", "main", "remove_folders", "start_members"]

PROGRAM: Final = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from fray.runtime.actors.local_pod import main
sys.exit(main())
"""
ROOT_FILE: Final = "root"
"""In a member's folder: the uid of the job whose actor it is."""
SOCKETS_FILE: Final = "sockets"
"""Likewise: the directory of its sockets, which one that was killed has left."""
PAYLOAD_SECONDS: Final = 60.0
"""How long after an actor its payload may come, as on clusters."""
IN_BACKGROUND: Final = '"$@" &'
"""A shell's command that starts another one which nobody has to wait for."""


class LocalReach:
    """How a process of this machine reaches the actors of a state directory; see `Reach`."""

    def __init__(self, state: Path) -> None:
        self.api = FileApi(state)

    def join(self, member: Member, address: Address) -> JoinedPool:  # noqa: ARG002 - its address is all
        """Join the pool of a member that listens there. Raises `TransportError`."""
        environ = os.environ  # noqa: TID251 - what limits the threads of this process
        owned = open_store(None, environ)
        objects = Address(path=str(owned.store.directory / "objects"))
        key = TransportKey.load(self.api.directory)
        return JoinedPool(address, key, ClientHost(owned, objects), patience=0.0, environ=environ)

    def start(self) -> None:
        """Start members that no process runs, unless the runner of this process's root job does."""
        if not os.environ.get(ENV_ROOT_JOB):  # noqa: TID251 - whether this is the process of a job
            start_members(self.api)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalReach, (self.api.state,)


def start_members(api: FileApi) -> None:
    """Start a process for each member of each actor that has none; what nobody hosts any more is removed."""
    api.remove_dead()
    for actor in api.list_all(FRAYACTORS):
        metadata, spec = actor["metadata"], actor["spec"]
        if "hosted" in spec["entrypoint"]:
            continue  # its process is another one
        for index in range(spec.get("replicas", 1)):
            member = Member(spec["name"], metadata["name"], metadata["uid"], index)
            try:
                _start(api, actor, member)
            except NotFoundError:  # its payload isn't there yet
                made = datetime.fromisoformat(metadata["creationTimestamp"])
                if datetime.now(UTC) - made > timedelta(seconds=PAYLOAD_SECONDS):
                    api.delete(FRAYACTORS, member.name, uid=member.uid)  # its creator died before that
                break


def _start(api: FileApi, actor: Manifest, member: Member) -> None:
    """Start a member's process where there is none; raises `NotFoundError` for a payload."""
    folder = api.directory / "pods" / member.pod_name
    if is_locked(folder / "lock"):
        return
    given = actor["spec"]["entrypoint"]["callable"]
    parts = [api.get(SECRETS, name) for name in (given["secretName"], *given.get("moreSecrets", ()))]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock_beside_readers(lock):
            return  # another process has just started it
        payload = folder / "payload"
        payload.mkdir(exist_ok=True)
        for part in parts:
            for name, data in part["data"].items():
                (payload / name).write_bytes(base64.b64decode(data))
        _begin_log(folder, member)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree((folder / SOCKETS_FILE).read_text(encoding="utf-8"), ignore_errors=True)
        for owner in actor["metadata"].get("ownerReferences", ()):
            (folder / ROOT_FILE).write_text(owner["uid"], encoding="utf-8")
        variables = _build_environment(api, actor, member, os.environ)  # noqa: TID251 - as of a child
        program = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[3]), str(api.state)]
        with (folder / "log").open("ab") as log:
            subprocess.run(
                ["/bin/sh", "-c", IN_BACKGROUND, "sh", *program],
                env=variables, pass_fds=(lock,), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, check=True,
            )  # fmt: skip
    finally:
        os.close(lock)  # its process holds it from here on


def remove_folders(api: FileApi, root_uid: str) -> None:
    """Remove what the members of a job's actors have left: the job, which has ended, is deleted.

    One of them may live for a second more, and has its files open.
    """
    for marked in api.directory.glob(f"pods/*/{ROOT_FILE}"):
        with contextlib.suppress(FileNotFoundError):
            if marked.read_text(encoding="utf-8") == root_uid:
                shutil.rmtree(marked.parent, ignore_errors=True)


def find_log(api: FileApi, member: Member) -> Path | None:
    """Return the file of what a member's processes printed; None: none of them was started yet."""
    folder = api.directory / "pods" / member.pod_name
    try:
        return folder / "log" if (folder / "uid").read_text(encoding="utf-8") == member.uid else None
    except FileNotFoundError:
        return None


def _begin_log(folder: Path, member: Member) -> None:
    """Remove what an earlier actor of this name printed. The member's lock is held."""
    uid = folder / "uid"
    if not uid.exists() or uid.read_text(encoding="utf-8") != member.uid:
        (folder / "log").unlink(missing_ok=True)
        (folder / "log").touch(mode=0o600)
        made = uid.with_suffix(".new")
        made.write_text(member.uid, encoding="utf-8")
        made.replace(uid)


def _build_environment(
    api: FileApi, actor: Manifest, member: Member, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a member's process: this one's, those of the spec, and what pods are told."""
    spec, given = actor["spec"], actor["spec"]["entrypoint"]["callable"]
    found = {name: value for name, value in environ.items() if not name.startswith("FRAY_")}
    found |= {
        each["name"]: each["value"]
        for each in (spec.get("environment") or {}).get("env") or ()
        if "value" in each
    }
    found["PYTHONPATH"] = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    found |= {
        **Settings(state_dir=api.state).to_env(),
        ENV_ACTOR_NAME: member.name,
        ENV_ACTOR_LABEL: spec["name"],
        ENV_ACTOR_UID: member.uid,
        ENV_ACTOR_INDEX: str(member.index),
        ENV_ACTOR_POD_UID: str(uuid.uuid4()),
        ENV_ACTOR_PAYLOAD: str(api.directory / "pods" / member.pod_name / "payload"),
        ENV_ACTOR_PAYLOAD_SHA256: given["sha256"],
        ENV_ACTOR_PAYLOAD_PYTHON: given["python"],
        ENV_POD_IP: "127.0.0.1",
        ENV_POOL_KEY: str(api.directory),
    }
    limits = {
        ENV_ACTOR_MAX_CONCURRENCY: spec.get("maxConcurrency"),
        ENV_ACTOR_MAX_RESTARTS: spec.get("maxRestarts"),
        ENV_ACTOR_IDLE_SECONDS: spec.get("idleSeconds"),
    }
    found |= {name: str(limit) for name, limit in limits.items() if limit is not None and limit >= 0}
    return found | ({ENV_ROOT_JOB: spec["rootJob"]} if spec.get("rootJob") else {})


def main() -> int:
    """Run a member until its actor is over; the argument is the state directory, variables say the rest."""
    api = FileApi(Path(sys.argv[1]))
    pod = ActorPod.from_env(os.environ)  # noqa: TID251 - the entry of the process
    # Not in the state directory, whose path may be too long for a socket.
    sockets = Path(tempfile.mkdtemp(prefix="fray-actor-"))
    noted = Path(os.environ[ENV_ACTOR_PAYLOAD]).with_name(SOCKETS_FILE)  # noqa: TID251 - as above
    noted.write_text(str(sockets), encoding="utf-8")
    os.environ[ENV_POOL_OBJECTS] = f"unix:{sockets}/objects"  # noqa: TID251 - for its child
    listen = Address(path=str(sockets / "head"))
    record = RecordWriter(api, pod, listen)
    try:
        return Supervisor(pod, record, (listen,), is_over=lambda: is_over(api, pod.member)).run()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
        if is_over(api, pod.member):
            # This process still holds the member's lock: no later actor of the name has written its own.
            shutil.rmtree(os.environ[ENV_ACTOR_PAYLOAD], ignore_errors=True)  # noqa: TID251 - as above


def _is_at_rest(api: FileApi, member: Member, actor: Manifest) -> bool:
    """Return whether nobody needs an actor: see `MemberRecord.at_rest`."""
    own = read_record(api, member)
    if own is None or not (own.idle or own.ended):
        return False  # asked again and again, of which one file is enough
    count = actor["spec"].get("replicas", 1)
    records = (read_record(api, replace(member, index=index)) for index in range(count))
    return all(record is not None and record.at_rest for record in records)


def is_over(api: FileApi, member: Member) -> bool:
    """Return whether an actor was deleted; it is, here, when its root job has ended or nobody needs it."""
    try:
        actor = api.get(FRAYACTORS, member.name)
    except NotFoundError:
        return True
    if actor["metadata"]["uid"] != member.uid:
        return True
    if _is_at_rest(api, member, actor):
        api.delete(FRAYACTORS, member.name, uid=member.uid)
        return True
    if (root := actor["spec"].get("rootJob")) is None:
        return False
    with contextlib.suppress(NotFoundError):
        owners = [owner["uid"] for owner in actor["metadata"]["ownerReferences"]]
        if api.get(FRAYJOBS, root)["metadata"]["uid"] in owners:
            return False
    api.delete(FRAYACTORS, member.name, uid=member.uid)
    return True
