"""A head for tests, that decides nothing: tests send commands over a real socket and take what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fray.runtime.pool.host_config import HostConfig
from fray.runtime.pool.message_codec import MESSAGES, decode_messages, encode_messages
from fray.runtime.pool.messages.commands import CreateActor, RunTask, StartWorker
from fray.runtime.pool.messages.events import TaskDone
from fray.runtime.pool.messages.greetings import NannyHello, WorkerHello
from fray.runtime.pool.messages.specs import ActorSpec, Failed, Outcome, Profile, TaskSpec
from fray.runtime.pool.objects.calls import encode_call
from fray.runtime.pool.objects.functions import encode_function
from fray.runtime.pool.objects.store import HostStore
from fray.runtime.pool.objects.values import decode
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.endpoints import Connection, Server, serve
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.failures import build_failure

PATIENCE = 60.0
"""Seconds after which something that should have happened never will."""
HOST = 1
NO_PROFILE = Profile()
MARK = "FRAY_TEST_POOL"
"""Environment variable by which the processes of one test are found."""

Message = TypeVar("Message")


class ScriptedHead:
    """Listens; each message that comes is kept, with the connection it came from, until a test takes it."""

    def __init__(self, address: Address, key: TransportKey) -> None:
        self.key = key
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="scripted-head")
        self._thread.start()
        self._arrived: queue.SimpleQueue[tuple[Connection, Any]] = queue.SimpleQueue()
        self._kept: list[tuple[Connection, Any]] = []
        self.workers: dict[int, Connection] = {}
        self.nanny: Connection | None = None
        self.server: Server = self._run(serve(address, key, self._begin))

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def _begin(self, connection: Connection) -> None:
        connection.on_frame = lambda frame: self._arrive(connection, decode_messages(frame.body))

    def _arrive(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, WorkerHello):
                self.workers[message.worker] = connection
            elif isinstance(message, NannyHello):
                self.nanny = connection
            self._arrived.put((connection, message))

    def take(self, kind: type[Message], **wanted: Any) -> Message:
        """Return the first message of a kind with these fields that hasn't been taken; wait for it."""
        for index in itertools.count():
            if index == len(self._kept):
                self._kept.append(self._arrived.get(timeout=PATIENCE))
            message = self._kept[index][1]
            if isinstance(message, kind) and all(getattr(message, key) == wanted[key] for key in wanted):
                del self._kept[index]
                return message
        raise AssertionError("unreachable")

    def seen(self) -> list[Any]:
        """Return what has come and wasn't taken."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._kept.append(self._arrived.get_nowait())
        return [message for _, message in self._kept]

    def tell(self, connection: Connection, *messages: Any) -> None:
        """Send messages in one frame."""
        body = encode_messages(list(messages))
        self.loop.call_soon_threadsafe(connection.send, MESSAGES, body)

    def tell_nanny(self, *messages: Any) -> None:
        assert self.nanny is not None
        self.tell(self.nanny, *messages)

    def turn(self) -> None:
        """Return when the event loop has done what it was told before."""
        self._run(asyncio.sleep(0))

    def cut(self, connection: Connection) -> None:
        self.loop.call_soon_threadsafe(connection.abort)

    def close(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._run(self.server.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(PATIENCE)
            self.loop.close()


class Pool:
    """A nanny with its scripted head, and short ways to make it run things."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.token = folder.name
        key = TransportKey(changes["secret"]) if "secret" in changes else TransportKey.generate()
        address = Address(path=str(folder / "head"))
        self.head = ScriptedHead(address, key)
        for name in ("store", "spill"):
            (folder / name).mkdir(mode=0o700)
        self.config = HostConfig(
            **{
                "token": self.token,
                "head": str(address),
                "secret": key.secret,
                "host": HOST,
                "name": "here",
                "resources": (("CPU", 2.0),),
                "workers": 2,
                "store": str(folder / "store"),
                "spill": str(folder / "spill"),
                "store_limit": 1 << 30,
                "sys_path": tuple(sys.path),
                **changes,
            }
        )
        self.store = HostStore(folder / "store", folder / "spill", 1 << 30)
        self._ids = itertools.count(1)
        self._workers = itertools.count(1)
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            self.nanny = subprocess.Popen(
                [sys.executable, "-m", "fray.runtime.pool.host.nanny"],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, MARK: self.token},
            )
        assert self.nanny.stdin is not None
        self.nanny.stdin.write(self.config.to_json().encode())
        self.nanny.stdin.close()
        self.hello = self.head.take(NannyHello)

    def start_worker(self, profile: Profile = NO_PROFILE) -> int:
        """Return the number of a worker that has connected."""
        worker = next(self._workers)
        self.head.tell_nanny(StartWorker(HOST, worker, profile))
        self.head.take(WorkerHello, worker=worker)
        return worker

    def tell(self, worker: int, *messages: Any) -> None:
        self.head.tell(self.head.workers[worker], *messages)

    def new_id(self) -> int:
        return next(self._ids)

    def task(self, worker: int, function: Callable[..., Any], *args: Any, **options: Any) -> RunTask:
        """Return the command to run a function; options are fields of RunTask or TaskSpec."""
        encoded = encode_function(function)
        command = {"waits": False, "attempt": 1, "skip": 0, "client": 0, "deps": ()}
        command.update({name: options.pop(name) for name in tuple(options) if name in command})
        holds = tuple(options.pop("refs", ()))
        spec = TaskSpec(
            **{
                "id": self.new_id(),
                "function": encoded.id,
                "args": encode_call(args, {}).args,
                "name": function.__name__,
                "deps": holds,
                **options,
            }
        )
        return RunTask(worker=worker, spec=spec, blob=encoded.blob, **command)

    def run(self, worker: int, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run a function and return its value, or raise what it raised."""
        command = self.task(worker, function, *args, **options)
        self.tell(worker, command)
        return self.value_of(command)

    def value_of(self, command: RunTask) -> Any:
        return self.value(command.spec.id, self.head.take(TaskDone, id=command.spec.id).outcome)

    def value(self, identity: int, outcome: Outcome) -> Any:
        if isinstance(outcome, Failed):
            raise build_failure(outcome)
        return decode(outcome if isinstance(outcome, bytes) else self.store.open(identity))

    def actor(self, worker: int, kind: type, *args: Any, incarnation: int = 1, **options: Any) -> CreateActor:
        """Return the command to construct an actor."""
        encoded = encode_function(kind)
        spec = ActorSpec(
            **{
                "id": self.new_id(),
                "function": encoded.id,
                "args": encode_call(args, {}).args,
                "name": "",
                "class_name": kind.__name__,
                **options,
            }
        )
        return CreateActor(worker, spec, encoded.blob, (), incarnation)

    def method(self, worker: int, actor: int, method: str, *args: Any, **options: Any) -> RunTask:
        """Return the command to call a method."""
        command = self.task(worker, print, shape=(), **options)
        spec = command.spec._replace(
            actor=actor, method=method, function=b"", name=method, args=encode_call(args, {}).args
        )
        return command._replace(spec=spec, blob=b"")

    def printed(self) -> str:
        return (self.folder / "stdout").read_text()

    def complained(self) -> str:
        return (self.folder / "stderr").read_text()

    def pids(self) -> set[int]:
        """Return the processes of this pool, no matter which process started them."""
        mark = f"{MARK}={self.token}\0".encode()
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes() + b"\0":
                    found.add(int(environ.parent.name))
        return found

    def close(self) -> None:
        """End the pool as a head does, and see that nothing is left."""
        self.head.close()
        self.store.close()
        sys.stderr.write(self.complained())  # pytest shows it with a failure
        try:
            self.nanny.wait(PATIENCE)
            left = self.pids()
            assert not left, f"processes are left: {left}"
        finally:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.nanny.wait(PATIENCE)


@contextlib.contextmanager
def make_pool(**changes: Any) -> Iterator[Pool]:
    # Not pytest's tmp_path: the path of a unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="fray-") as folder:
        pool = Pool(Path(folder), **changes)
        try:
            yield pool
        finally:
            pool.close()
