"""An actor that is an object of this process: what callers join is a pool, as with the pod of a member.

The pool's head is a process of its own, which ends with this one, and so do the host that has what calls
return. The worker is this process: it joins by a host that has nothing else.
"""

from __future__ import annotations

import contextvars
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from fray.errors import PeerUnreachableError, TransportError
from fray.payload.stamp import Stamp
from fray.runtime.actors.identity import ACTOR
from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.joined_pool import RUN_HEAD, ClientHost, JoinedPool, open_store
from fray.runtime.pool.local_pool import end_with_process, start_process
from fray.runtime.pool.message_codec import MESSAGES, STAMP, decode_messages, encode_messages
from fray.runtime.pool.messages.commands import StartWorker
from fray.runtime.pool.messages.greetings import HostWelcome, NannyHello
from fray.runtime.pool.messages.specs import ActorSpec, Failed, WorkerId
from fray.runtime.pool.objects.calls import encode_call
from fray.runtime.pool.objects.directories import OwnedStore
from fray.runtime.pool.objects.functions import encode_function
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.blocking import BlockingConnection
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.failures import build_failure
from fray.runtime.pool.worker.hosted import HostedWorker
from fray.runtime.pool.worker.threads import start_apart

__all__ = ["Attach", "HostedObject", "HostedServer", "Listening"]

Attach = Callable[[str, PoolClient, ObjectReader], object]
"""Called with the token, the client and the objects of the worker before it has an actor."""
HOSTED: Final = (("hosted", 1.0),)
"""What the actor needs, and only the host of this process offers."""
WELCOME_SECONDS: Final = 30.0
"""How long the head may take to answer: the machine may stand still."""


@dataclass(frozen=True)
class Listening:
    """Where the server listens: `head` for callers, `objects` for large results; `key` is a directory.

    Without a path these are addresses of the machine, the head's with any port of it.
    """

    key: Path
    head: Address | None = None
    """None: at a socket in the directory of this process's objects."""
    objects: Address | None = None


@dataclass(frozen=True)
class HostedObject:
    """What is served: `construct` is called once, in the thread in which the actor's calls run."""

    construct: Callable[[], Any]
    class_name: str
    methods: bytes = field(repr=False)
    """As callers read them."""
    max_concurrency: int
    on_loop: bool
    """Whether its methods run in an event loop."""


class HostedServer:
    """Serves an object of this process until `stop`; returns once it has been constructed.

    Parameters: what is `hosted`; the `token` of its incarnation; where it is `listening`; `attach`; `on_end`
    is called, by any thread, when the actor has ended itself, or its server has; `environ` of this process.

    Raises what `construct` raises, `TransportError` if the server can't be started, `PoolClosedError` if it
    ends before that.
    """

    def __init__(
        self,
        hosted: HostedObject,
        token: str,
        listening: Listening,
        *,
        attach: Attach,
        on_end: Callable[[], object],
        environ: Mapping[str, str],
    ) -> None:
        self._key = TransportKey.load(listening.key)
        self._attach = attach
        self._on_end = on_end
        self._context = contextvars.copy_context()
        self._constructed: Future[None] = Future()
        self._worker: HostedWorker | None = None
        self._host: BlockingConnection | None = None
        self._stopped = False
        owned = open_store(None, environ)
        directory = owned.store.directory
        self._own = Address(path=str(directory / "head"))
        """Where this process joins: TLS would make calls slower."""
        listen = (self._own,) if listening.head is None else (listening.head, self._own)
        objects = listening.objects or Address(path=str(directory / "objects"))
        head, self.address = _start_head(owned, listen, listening.key, token)
        """Where the head listens for callers."""
        offer = ClientHost(owned, objects)
        self._pool = JoinedPool(self._own, self._key, offer, patience=0.0, own_head=head, environ=environ)
        self._store = owned.store
        end_with_process(self)
        try:
            self._join(owned)
            self._create(hosted)
            self._constructed.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server, with the connections of all callers. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        # First of all the head, which would tell callers of a lost worker: they are to look why it has ended.
        self._pool.stop()
        if self._worker is not None:
            self._worker.close()
        if self._host is not None:
            self._host.close()

    def forget(self) -> None:
        """Leave everything to the parent: this process is a fork of it."""
        self._stopped = True
        if self._worker is not None:
            self._worker.forget()

    # --- the host of this process --------------------------------------------------------------------------

    def _join(self, owned: OwnedStore) -> None:
        """Join the pool as a host on which no process is started: its worker is here."""
        connection = self._host = BlockingConnection.connect(self._own, self._key)
        connection.send(STAMP, Stamp.here().to_json().encode())
        hello = NannyHello(0, "the process that hosts the actor", HOSTED, 1, owned.store.limit, "")
        connection.send(MESSAGES, encode_messages([hello]))
        welcome, *early = decode_messages(connection.receive(WELCOME_SECONDS).body)
        assert isinstance(welcome, HostWelcome)
        start_apart(partial(self._serve_head, connection, early), "fray-hosted-host", daemon=True)

    def _serve_head(self, connection: BlockingConnection, early: list[Any]) -> None:
        try:
            while True:
                for message in early:
                    # A process for tasks is awaited too, since each host has one: there are no tasks.
                    if type(message) is StartWorker and message.profile.actors:
                        self._start_worker(message.worker)
                early = decode_messages(connection.receive().body)
        except TransportError as error:
            with suppress(InvalidStateError):  # it is constructed
                self._constructed.set_exception(error)
            self._on_end()

    def _start_worker(self, number: WorkerId) -> None:
        connection = BlockingConnection.connect(self._own, self._key)
        worker = HostedWorker(
            number,
            connection,
            self._store,
            host=self._pool.host,  # which has what the actor's calls return
            key=self._key,
            context=self._context,
            on_end=self._on_end,
        )
        self._attach(self._pool.token, worker.client, worker.objects)
        self._worker = worker
        worker.start()

    # --- the actor -----------------------------------------------------------------------------------------

    def _create(self, hosted: HostedObject) -> None:
        client = self._pool.client
        place = secrets.token_hex(8)
        with _lock:
            _constructors[place] = partial(self._construct, hosted)
        function = encode_function(partial(_construct_here, place))
        spec = ActorSpec(
            client.new_id(),
            function.id,
            encode_call((), {}).args,
            ACTOR,
            hosted.class_name,
            shape=HOSTED,
            isolated=True,
            on_loop=hosted.on_loop,
            max_concurrency=hosted.max_concurrency,
            methods=hosted.methods,
        )
        created = client.create_actor(spec, function.blob)
        if isinstance(created, Failed):
            raise build_failure(created)

    def _construct(self, hosted: HostedObject) -> Any:
        try:
            instance = hosted.construct()
        except BaseException as error:
            with suppress(InvalidStateError):  # its server has ended, which the caller knows
                self._constructed.set_exception(error)
            raise
        self._constructed.set_result(None)
        return instance


_lock = threading.Lock()
_constructors: dict[str, Callable[[], Any]] = {}
"""What is to be constructed in this process: the pool carries its key alone."""


def _construct_here(place: str) -> Any:
    with _lock:
        construct = _constructors.pop(place)
    return construct()


def _start_head(
    owned: OwnedStore, listen: tuple[Address, ...], key: Path, token: str
) -> tuple[subprocess.Popen[bytes], Address]:
    """Start the pool's head; return it, and the first address at which it listens.

    Closes the store if it doesn't start.
    """
    news, telling = os.pipe()
    try:
        head = start_process(
            RUN_HEAD,
            *(f"--listen={address}" for address in listen),
            *("--key", str(key), "--token", token, "--owner", str(os.getpid())),
            *("--announce", str(telling)),
            pass_fds=(telling,),
        )
    except BaseException:
        os.close(news)
        owned.close()
        raise
    finally:
        os.close(telling)
    with os.fdopen(news, encoding="utf-8") as pipe:
        address = pipe.readline().strip()
    if not address:
        head.wait()
        owned.close()
        raise PeerUnreachableError(str(listen[0]), "its server didn't start: it has said why")
    return head, Address.parse(address)
