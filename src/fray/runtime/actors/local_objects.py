"""FrayActors on this machine: objects in files, which take the place of those of an API server.

<state>/actors/<plural>/<name>.json     an object, replaced in one step
<state>/actors/lock                     held while one is looked at and then changed
<state>/actors/pool.key                 by which actors and callers know each other
<state>/actors/pods/<name>-<index>      lock, payload and log of a member; see `local_pod`
<state>/actors/hosts/<server>           locked as long as the process lives that hosts an actor
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fray.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from fray.kube.objects import Manifest, Page
from fray.kube.resources import FRAYACTORS, FRAYJOBS, Resource
from fray.runtime.file_locks import is_locked, lock_beside_readers
from fray.runtime.pool.transport.handshake import SECRET_SIZE
from fray.runtime.pool.transport.keys import SECRET_FILE
from fray.vocabulary import FRAYACTOR_KIND

__all__ = ["FileApi", "HostLock"]

NAMESPACE: Final = "local"
CONFLICT: Final = 409
NOT_FOUND: Final = 404


class HostLock:
    """Shows that the process lives that hosts an actor. Parameters: the `path` of a file that nobody has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        lock_beside_readers(self._file)

    def release(self) -> None:
        """Show that it is over. May be called twice."""
        self._path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Leave it to the parent: this process is a fork of it, which would keep the lock."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class FileApi:
    """The objects below a state directory of this user, for any thread; see `ObjectApi` and `ApiClient`.

    FrayJobs are those of the local backend whose runner lives; they are only read. A FrayActor that a process
    hosts is there as long as that process lives.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.directory = state / "actors"

    @property
    def namespace(self) -> str:
        """A name for errors; there is one namespace."""
        return NAMESPACE

    def open(self) -> None:
        """Make the directory with its key, where it isn't there."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            key = self.directory / SECRET_FILE
            if not key.exists():
                made = key.with_suffix(".new")
                made.touch(mode=0o600)
                made.write_bytes(secrets.token_bytes(SECRET_SIZE))
                made.replace(key)

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:  # noqa: ARG002
        """Return an object; raises `NotFoundError`."""
        path = self._path(resource, name)
        try:
            if resource != FRAYJOBS or is_locked(path.with_name("runner.lock")):
                found: Manifest = json.loads(path.read_bytes())
                if self._is_there(found):
                    return found
        except (FileNotFoundError, NotADirectoryError):
            pass
        raise NotFoundError(f"GET {path}", NOT_FOUND, "NotFound", f"{resource.plural} {name!r} not found")

    def hold(self, server: str) -> HostLock:
        """Let what a server of this process hosts be there, as long as the process lives."""
        self.open()
        path = self._host(server)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        return HostLock(path)

    def remove_dead(self) -> None:
        """Remove FrayActors whose host has ended without a word."""
        for path in sorted((self.directory / FRAYACTORS.plural).glob("*.json")):
            with contextlib.suppress(FileNotFoundError), self._locked():
                found = json.loads(path.read_bytes())
                if not self._is_there(found):
                    path.unlink()
                    self._collect(found["metadata"]["uid"])
                    self._host(found["spec"]["entrypoint"]["hosted"]["server"]).unlink(missing_ok=True)

    def list_pages(self, resource: Resource, *, namespace: str | None = None) -> Iterator[Page]:  # noqa: ARG002
        """Return all objects of a kind, in one page."""
        yield Page(self.list_all(resource), "")

    def list_all(self, resource: Resource) -> list[Manifest]:
        """Return all objects of a kind."""
        found = []
        for path in sorted((self.directory / resource.plural).glob("*.json")):
            with contextlib.suppress(NotFoundError):
                found.append(self.get(resource, path.stem))
        return found

    def create(
        self,
        resource: Resource,
        body: Manifest,
        *,
        namespace: str | None = None,  # noqa: ARG002 - there is one
        repeat: bool = False,  # noqa: ARG002 - no answer is ever lost
    ) -> Manifest:
        """Create an object; of several callers one succeeds. Raises `AlreadyExistsError` for the others."""
        path = self._path(resource, body["metadata"]["name"])
        self.open()
        if resource == FRAYACTORS:
            self.remove_dead()
        with self._locked():
            if path.exists():
                raise AlreadyExistsError(f"POST {path}", CONFLICT, "AlreadyExists", "it exists")
            for owner in body["metadata"].get("ownerReferences", ()):
                if owner["kind"] == FRAYACTOR_KIND and not self.has_actor(owner["name"], owner["uid"]):
                    gone = f"its owner, FrayActor {owner['name']!r}, is gone"
                    raise NotFoundError(f"POST {path}", NOT_FOUND, "NotFound", gone)
            made = {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
            made["creationTimestamp"] = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            metadata = {**body["metadata"], **made}
            return self._write(path, {**body, "metadata": metadata})

    def patch(
        self, resource: Resource, name: str, changes: Manifest, *, namespace: str | None = None
    ) -> Manifest:
        """Change an object's data, and fields of its metadata; with a version among these, only that one."""
        path = self._path(resource, name)
        with self._locked():
            found = self.get(resource, name, namespace=namespace)
            version, given = found["metadata"]["resourceVersion"], changes["metadata"]
            if given.get("resourceVersion", version) != version:
                raise ConflictError(f"PATCH {path}", CONFLICT, "Conflict", "it has changed")
            metadata = {**found["metadata"], **given, "resourceVersion": str(int(version) + 1)}
            return self._write(path, {**found, "metadata": metadata, "data": changes["data"]})

    def delete(
        self, resource: Resource, name: str, *, namespace: str | None = None, uid: str | None = None
    ) -> None:
        """Delete an object and those that it owns, only if it has this uid; one that is gone is fine."""
        with self._locked(), contextlib.suppress(NotFoundError):
            found = self.get(resource, name, namespace=namespace)
            if uid in (None, found["metadata"]["uid"]):
                self._path(resource, name).unlink()
                self._collect(found["metadata"]["uid"])

    def remove_owned(self, owner: str) -> None:
        """Remove what a job of this uid owned, which is gone."""
        with self._locked():
            self._collect(owner)

    def has_actor(self, name: str, uid: str) -> bool:
        """Return whether this very FrayActor is there."""
        try:
            return bool(self.get(FRAYACTORS, name)["metadata"]["uid"] == uid)
        except NotFoundError:
            return False

    def _collect(self, owner: str) -> None:
        for path in self.directory.glob("*/*.json"):
            with contextlib.suppress(FileNotFoundError):
                metadata = json.loads(path.read_bytes())["metadata"]
                if any(each.get("uid") == owner for each in metadata.get("ownerReferences", ())):
                    path.unlink()

    def _is_there(self, found: Manifest) -> bool:
        entrypoint = (found.get("spec") or {}).get("entrypoint") or {}
        hosted = entrypoint.get("hosted")
        return hosted is None or is_locked(self._host(hosted["server"]))

    def _host(self, server: str) -> Path:
        return self.directory / "hosts" / server

    def _path(self, resource: Resource, name: str) -> Path:
        if resource == FRAYJOBS:
            return self.state / "jobs" / name / "job.json"
        return self.directory / resource.plural / f"{name}.json"

    @staticmethod
    def _write(path: Path, body: Manifest) -> Manifest:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        made = path.with_suffix(".new")
        made.write_text(json.dumps(body), encoding="utf-8")
        made.replace(path)
        return body

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)
