"""How an object of this process becomes a FrayActor: its name, its server, and who notices its end.

The FrayActor comes first, as with others, so that of several who ask for a name one gets it. Then the server
begins, and the record says where it listens. What is found under the name is this incarnation or none.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fray.errors import ActorDiedError, FrayError, InvalidOptionError, TransportKeyError
from fray.job.actor_groups import constructing
from fray.job.actor_methods import ActorMethods
from fray.job.actors import HostedActor
from fray.job.calls import has_async_methods
from fray.job.named_actors import NamedActorHandle, find_objects, find_pod_reach
from fray.job.options import ActorOptions
from fray.job.pool_engine import ASYNC_CALLS, PoolEngine, PoolSession
from fray.kube.errors import ApiError
from fray.runtime.actors.hosted import HostedObject, HostedServer, Listening
from fray.runtime.actors.identity import ACTOR, ActorPod
from fray.runtime.actors.joining import Reach
from fray.runtime.actors.local_objects import HostLock
from fray.runtime.actors.local_pod import LocalReach
from fray.runtime.actors.objects import ActorObjects, NewActor, check_lives, delete_actor
from fray.runtime.actors.record import RecordApi, RecordWriter
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.local_pool import end_with_process
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.pod import read_objects_address
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.threads import start_apart
from fray.settings import STATE_DIR
from fray.vocabulary import ENV_POD_NAME, ENV_POD_UID, ENV_POOL_KEY

__all__ = ["Hosting", "find_hosting", "find_local_hosting", "find_pod_hosting", "host_on_machine", "serve"]

_log: Final = logging.getLogger(__name__)

PATIENCE: Final = 120.0
"""Seconds for what is to come by itself."""
PAUSE: Final = 0.5
LOOK_SECONDS: Final = 1.0
"""How often it looks whether its FrayActor was deleted, or belongs to another process by now."""


@dataclass(frozen=True)
class Hosting:
    """What a process needs to host actors."""

    objects: ActorObjects
    api: RecordApi
    given: Reach | None
    """How processes that are no pods reach it; handles keep it."""
    pod: str
    pod_uid: str
    listening: Listening
    host: str
    """Where callers reach this process; empty: at a socket of this machine."""
    detached: bool
    """Whether it belongs to no job."""
    hold: Callable[[str], HostLock] | None = None
    """Lets others see that a server's process lives, where nobody looks after its pod."""


def find_hosting(environ: Mapping[str, str]) -> Hosting | None:
    """Return how the process of a job hosts actors; None: it is none, or its pod can't be called."""
    return find_pod_hosting(environ) or find_local_hosting(environ)


def find_local_hosting(environ: Mapping[str, str]) -> Hosting | None:
    """Return how the process of a job on this machine hosts actors; None: it is none."""
    state, objects = environ.get(STATE_DIR), find_objects(environ)
    if find_pod_reach() is not None or not state or objects is None:
        return None
    return host_on_machine(Path(state), objects, detached=False)


def find_pod_hosting(environ: Mapping[str, str]) -> Hosting | None:
    """Return how the process of a job's pod hosts actors; None: it is in none, or in one without keys."""
    reach, objects = find_pod_reach(), find_objects(environ)
    name, uid = environ.get(ENV_POD_NAME), environ.get(ENV_POD_UID)
    if reach is None or objects is None or not (name and uid):
        return None
    # Any port: those of the job's own pool are open to its own pods only.
    served = replace(read_objects_address(environ), port=0, last=0)
    anywhere = Address(host="::" if ":" in served.host else "0.0.0.0")
    listening = Listening(Path(environ[ENV_POOL_KEY]), anywhere, served)
    return Hosting(objects, reach.api, None, name, uid, listening, served.host, False)


def host_on_machine(state: Path, objects: ActorObjects | None = None, *, detached: bool) -> Hosting:
    """Return how a process of this machine hosts actors, for those that share a state directory."""
    reach = LocalReach(state)
    api = reach.api
    process = f"process-{os.getpid()}"
    listening = Listening(api.directory)
    own = objects or ActorObjects(api)
    return Hosting(own, api, reach, process, str(uuid.uuid4()), listening, "", detached, api.hold)


def serve(
    hosting: Hosting,
    made_by: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str,
    options: ActorOptions | None,
) -> HostedActor[Any]:
    """Serve an object of this process; see `fray.job.hosting.host_actor`."""
    if not isinstance(name, str):
        raise InvalidOptionError("name", repr(name), "what others find the actor by")
    if isinstance(made_by, type) or inspect.isroutine(made_by):
        served = _Served(made_by, functools.partial(made_by, *args, **kwargs))
    elif args or kwargs:
        what = f"an object of {type(made_by).__name__}, which is there already and takes no arguments"
        raise InvalidOptionError("what host_actor serves", what, "an object alone, or a class with arguments")
    else:
        served = _Served(type(made_by), lambda: made_by)
    return _Serving(hosting, served, name, options or ActorOptions()).hosted


@dataclass(frozen=True)
class _Served:
    """What is served: its class, or the function that gives it."""

    made_by: Callable[..., Any]
    construct: Callable[[], Any]


def _persistently(act: Callable[[], object], problem: type[FrayError]) -> None:
    """Do it, again and again for so long as it may still come to be possible. Raises the last `problem`."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            act()
        except problem:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(PAUSE)
        else:
            return


class _Serving:
    """One hosted actor, from its name to its end."""

    def __init__(self, hosting: Hosting, served: _Served, name: str, options: ActorOptions) -> None:
        self._hosting = hosting
        self._over = threading.Event()
        self._deleted = False
        self._server: HostedServer | None = None
        self._engine: PoolEngine | None = None
        server = secrets.token_hex(8)
        self._lock = None if hosting.hold is None else hosting.hold(server)
        try:
            # In the first job of a namespace the keys may come after the pod has begun.
            _persistently(lambda: TransportKey.load(hosting.listening.key), TransportKeyError)
            new = NewActor(
                name,
                None,
                detached=hosting.detached,
                max_concurrency=options.max_concurrency,
                hosted={"pod": hosting.pod, "podUid": hosting.pod_uid, "server": server},
            )
            self._member, _ = hosting.objects.create(new, get_if_exists=False)
        except BaseException:
            self._end_server()
            raise
        end_with_process(self)
        try:
            made_by = served.made_by
            class_name = getattr(made_by, "__name__", type(made_by).__name__)
            methods = ActorMethods.of(made_by, class_name, self._member.label)
            self._handle: NamedActorHandle[Any] = NamedActorHandle(self._member, methods, hosting.given)
            address = self._start(served, methods, options)
        except BaseException:
            self.stop()
            raise
        self.hosted: HostedActor[Any] = HostedActor(self._handle, str(address), self.end)
        start_apart(self._watch, f"fray-hosted-{name}", daemon=True)

    def _start(self, served: _Served, methods: ActorMethods, options: ActorOptions) -> Address:
        """Start the server, and tell where it listens."""
        hosting, member = self._hosting, self._member
        on_loop = options.max_concurrency is None and has_async_methods(served.made_by)

        def construct() -> Any:
            with constructing(member.label, 0, lambda: self._handle):
                return served.construct()

        self._server = HostedServer(
            HostedObject(
                construct,
                methods.class_name,
                # What its callers know it by, as all members of FrayActors.
                methods._replace(label=ACTOR).encode(),
                options.max_concurrency or (ASYNC_CALLS if on_loop else 1),
                on_loop,
            ),
            member.incarnation,
            hosting.listening,
            attach=self._attach,
            on_end=self._note_end,
            environ=os.environ,  # noqa: TID251 - what limits the threads of this process
        )
        address = self._server.address
        if hosting.host:
            address = Address(host=hosting.host, port=address.port)
        pod = ActorPod(member, hosting.pod_uid, hosting.host, hosting.listening.key)
        record = RecordWriter(hosting.api, pod, address)
        # What an earlier actor of this name has told may still be there: the garbage collector will take it.
        _persistently(record.begin, ApiError)
        _persistently(lambda: record.tell(ready=True), ApiError)
        return address

    def _attach(self, token: str, client: PoolClient, objects: ObjectReader) -> None:
        """Let refs among the arguments of calls be read here."""
        self._engine = PoolEngine(PoolSession(token, client, objects))

    # --- its end -------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Delete the FrayActor, and end the server in any case. Raises `ApiError`."""
        self._over.set()
        try:
            if not self._deleted:
                delete_actor(self._hosting.api, self._member)
                self._deleted = True
        finally:
            self._end_server()

    def stop(self) -> None:
        """End it as far as that is possible, with the process."""
        try:
            self.end()
        except ApiError as error:
            _log.warning("actor %s ends, and can't be deleted: %s", self._member.label, error)

    def forget(self) -> None:
        """Leave everything to the parent: this process is a fork of it."""
        self._over.set()
        if self._server is not None:
            self._server.forget()
        if self._lock is not None:
            self._lock.forget()

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.stop()
        if self._lock is not None:
            self._lock.release()

    def _note_end(self) -> None:
        """Let it end that has ended by itself, from a thread that may block."""
        if not self._over.is_set():
            self._over.set()
            start_apart(self.stop, "fray-hosted-end", daemon=True)

    def _watch(self) -> None:
        """End it once its FrayActor is gone: it was deleted, or another process has its name."""
        while not self._over.wait(LOOK_SECONDS):
            try:
                check_lives(self._hosting.api, self._member)
            except ActorDiedError as error:
                _log.warning("hosted actor %s ends: %s", self._member.label, error.reason)
                self._deleted = True
                self.stop()
            except ApiError:
                continue  # whether it lives is learnt later
