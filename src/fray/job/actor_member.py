"""The process beside the server in an actor's pod: it brings the worker, and watches the actor.

The supervisor starts it (`fray.runtime.actors.pod`) and hears by a pipe how it goes: a line with null once
the constructor has returned, or one that says what went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO

from fray.errors import ActorDiedError, RemoteTracebackError, SettingError, TaskError
from fray.job.actors import ActorHandle
from fray.job.calls import Call, MethodCall
from fray.job.lockstep import create_front, create_part, find_failure
from fray.job.options import ActorOptions
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.refs import ObjectRef
from fray.payload.values.texts import cut, text_of, traceback_of, type_name
from fray.runtime.actor_life import PROBE
from fray.runtime.actors.identity import ACTOR, build_place, read_hosts
from fray.runtime.actors.record import LastError
from fray.runtime.callable_runner import become_main, load_call
from fray.runtime.container import available_accelerators
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.pod import read_objects_address
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.actor_host import ENDED_ITSELF, IDLE_SECONDS, SHUT_DOWN, UNTIL_END
from fray.runtime.pool.worker_pod import build_resources
from fray.vocabulary import (
    ENV_ACTOR_CLASS,
    ENV_ACTOR_IDLE_SECONDS,
    ENV_ACTOR_MAX_CONCURRENCY,
    ENV_ACTOR_PAYLOAD,
    ENV_ACTOR_PAYLOAD_PYTHON,
    ENV_ACTOR_PAYLOAD_SHA256,
    EXIT_FAILURE,
)

__all__ = ["main"]

LOOK_SECONDS: Final = 0.3
"""How often it looks for hosts that are to join, and whether the actor is idle."""
TEXT_LIMIT: Final = 1_000
TRACEBACK_LIMIT: Final = 8_000
"""Characters that are told of an exception: the record is a ConfigMap."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the actor until it ends; return the exit code, which is never 0."""
    parser = argparse.ArgumentParser(prog="fray.job.actor_member", description=__doc__)
    parser.add_argument("--head", required=True, type=Address.parse)
    parser.add_argument("--key", required=True, type=Path)
    parser.add_argument("--news", required=True, type=int, help="descriptor of the supervisor's pipe")
    parsed = parser.parse_args(arguments)
    environ = os.environ  # noqa: TID251 - the entry of the process
    with os.fdopen(parsed.news, "w", encoding="utf-8") as pipe:
        news = _News(pipe)
        progress = _Progress()
        try:
            call, hosts = _load(environ), read_hosts(environ)
            progress.hosts = hosts
            objects = read_objects_address(environ)
            # On several hosts two processes are here: the front, and a part.
            places = dict.fromkeys(build_place(0), 2.0) if hosts > 1 else {}
            offer = ClientHost(
                open_store(None, environ),
                objects,
                tuple(sorted({**build_resources({}), **places}.items())),
                workers=min(hosts, 2),
            )
            key = TransportKey.load(parsed.key)
            pool = JoinedPool(parsed.head, key, offer, environ=environ)
            engine = PoolEngine(PoolSession(pool.token, pool.client, pool.objects))
            # On the machine of a program the devices are not the actor's alone.
            accelerators = {} if objects.is_unix else available_accelerators()
            if hosts > 1:
                parts = _create_parts(pool, engine, call, hosts, accelerators)
                _await_all(parts, PROBE, progress)
                actor = create_front(engine, parts)
                # The parts first: that one is lost is told before what the front says of it.
                watched = [*parts, actor]
            else:
                limit = environ.get(ENV_ACTOR_MAX_CONCURRENCY)
                options = ActorOptions(
                    name=ACTOR,
                    resources=accelerators,
                    isolation="process",
                    max_concurrency=int(limit) if limit else None,
                )
                actor = ActorHandle(engine, engine.create_actor(call, options))
                watched = parts = [actor]
            _await_all(watched, PROBE, progress)
            progress.constructing = False
            _await_signal(lambda: _ask_to_end(parts))
            news.tell(None)
            if idle_after := environ.get(ENV_ACTOR_IDLE_SECONDS):
                _start_daemon(lambda: _watch_idle(actor, float(idle_after), news))
            _await_all(watched, UNTIL_END, progress)  # raises at once when one ends
        except BaseException as error:  # noqa: BLE001 - whatever it is, it's the actor's end
            if isinstance(error, ActorDiedError) and error.reason == ENDED_ITSELF:
                news.tell({"ended": ENDED_ITSELF})
            else:
                news.tell(asdict(_describe(error, progress)))
    return EXIT_FAILURE


@dataclass
class _Progress:
    """How far the actor is, for what is told of its end."""

    hosts: int = 1
    constructing: bool = True
    where: str = ""
    """On which of several hosts it failed, with a colon."""


def _create_parts(
    pool: JoinedPool, engine: PoolEngine, call: Call, hosts: int, accelerators: dict[str, float]
) -> list[ActorHandle[Any]]:
    """Construct the actor on all hosts at once, when they have joined: constructors may wait for others."""
    awaited = {name for host in range(hosts) for name in build_place(host)}
    while awaited:
        for joined in pool.stats().hosts.values():
            awaited -= dict(joined.offered).keys()
        time.sleep(LOOK_SECONDS if awaited else 0.0)
    return [create_part(engine, call, host, accelerators=accelerators) for host in range(hosts)]


def _load(environ: Mapping[str, str]) -> Call:
    """Return what makes the actor. Raises `PayloadError`, `SettingError`, and what an import raises."""
    place = environ.get(ENV_ACTOR_PAYLOAD)
    if place:
        loaded = load_call(
            place,
            sha256=environ.get(ENV_ACTOR_PAYLOAD_SHA256, ""),
            python=environ.get(ENV_ACTOR_PAYLOAD_PYTHON, ""),
        )
        become_main(loaded)
        return Call(loaded.function, loaded.args, loaded.kwargs)
    module, _, name = environ.get(ENV_ACTOR_CLASS, "").partition(":")
    if not (module and name):
        raise SettingError(ENV_ACTOR_CLASS, "names no `module:Class`")
    return Call(getattr(import_module(module), name), (), {})


def _await_all(actors: Sequence[ActorHandle[Any]], method: str, progress: _Progress) -> None:
    """Return once all have answered; raises what a constructor raised, or the end of one."""
    failure = find_failure([_call(actor, method) for actor in actors])
    if failure is not None:
        place, error = failure
        progress.where = f"host {place}: " if place < progress.hosts > 1 else ""
        raise error


def _call(actor: ActorHandle[Any], method: str) -> ObjectRef[Any]:
    return actor._submit(MethodCall(method))


class _News:
    """What the supervisor is told, from any thread."""

    def __init__(self, pipe: TextIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def tell(self, news: Any) -> None:
        """Write a line. Ends this process if the supervisor has ended: nobody is left to be told."""
        with self._lock:
            try:
                self._pipe.write(json.dumps(news) + "\n")
                self._pipe.flush()
            except BrokenPipeError:
                os._exit(EXIT_FAILURE)


def _watch_idle(actor: ActorHandle[Any], seconds: float, news: _News) -> None:
    """Tell whether the actor is idle, each time that changes, as long as it lives."""
    idle = False
    with contextlib.suppress(TaskError):  # the main thread tells of its end
        while True:
            time.sleep(LOOK_SECONDS)
            since: float = _call(actor, IDLE_SECONDS).result()
            if idle != (since >= seconds):
                idle = not idle
                news.tell({"idle": idle})


def _start_daemon(work: Callable[[], object]) -> None:
    threading.Thread(target=work, name="fray-member", daemon=True).start()


def _await_signal(act: Callable[[], object]) -> None:
    """Let SIGTERM do this, in a thread of its own: the main one may stand in the middle of a call."""
    asked = threading.Event()

    def wait() -> None:
        asked.wait()
        act()

    _start_daemon(wait)
    signal.signal(signal.SIGTERM, lambda *_: asked.set())


def _ask_to_end(actors: Sequence[ActorHandle[Any]]) -> None:
    """Ask the actor to end, on all of its hosts, which ends this process in turn."""
    with contextlib.suppress(TaskError):
        asked = [_call(actor, SHUT_DOWN) for actor in actors]
        if not any(ref.result() for ref in asked):
            os._exit(EXIT_FAILURE)


def _describe(error: BaseException, progress: _Progress) -> LastError:
    if isinstance(error, ActorDiedError) and error.__cause__ is not None:
        error = error.__cause__  # what the actor says that it has failed with
    cause = error.__cause__
    if isinstance(error, ActorDiedError):
        # Its process was lost: why, not what callers may do about it, nor where this one has learnt of it.
        text, shown = error.reason, ""
    else:
        text = text_of(error)
        # What Fray says of a constructor, such as one that exits, was raised by no line of the user's.
        own = "" if isinstance(error, TaskError) else traceback_of(error)
        shown = cause.traceback if isinstance(cause, RemoteTracebackError) else own
    message = progress.where + cut(text, TEXT_LIMIT)
    return LastError(type_name(error), message, shown[-TRACEBACK_LIMIT:], progress.constructing)
