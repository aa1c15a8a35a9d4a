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
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO

from fray.errors import ActorDiedError, RemoteTracebackError, SettingError, TaskError
from fray.job.actor_methods import RemoteActor
from fray.job.calls import Call
from fray.job.options import ActorOptions, CallOptions
from fray.job.pool_engine import PoolEngine, PoolSession
from fray.job.refs import ObjectRef, read_ref
from fray.payload.values.texts import cut, text_of, traceback_of, type_name
from fray.runtime.actor_life import PROBE
from fray.runtime.actors.identity import ACTOR
from fray.runtime.actors.record import LastError
from fray.runtime.callable_runner import become_main, load_call
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.pod import read_objects_address
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import TransportKey
from fray.runtime.pool.worker.actor_host import ENDED_ITSELF, IDLE_SECONDS, SHUT_DOWN
from fray.runtime.pool.worker_pod import build_resources
from fray.vocabulary import (
    ENV_ACTOR_CLASS,
    ENV_ACTOR_IDLE_TIMEOUT,
    ENV_ACTOR_MAX_CONCURRENCY,
    ENV_ACTOR_PAYLOAD,
    ENV_ACTOR_PAYLOAD_PYTHON,
    ENV_ACTOR_PAYLOAD_SHA256,
    EXIT_FAILURE,
)

__all__ = ["main"]

LOOK_SECONDS: Final = 0.3
"""How often it looks whether an idle actor lives; a busy one is told of at once."""
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
        constructing = True
        try:
            call = _load(environ)
            offer = ClientHost(
                open_store(None, environ),
                read_objects_address(environ),
                tuple(sorted(build_resources({}).items())),
                workers=1,
            )
            key = TransportKey.load(parsed.key)
            pool = JoinedPool(parsed.head, key, offer, environ=environ)
            engine = PoolEngine(PoolSession(pool.token, pool.client, pool.objects))
            limit = environ.get(ENV_ACTOR_MAX_CONCURRENCY)
            options = ActorOptions(
                name=ACTOR, isolation="process", max_concurrency=int(limit) if limit else None
            )
            actor = engine.create_actor(call, options)
            _probe(engine, actor)
            constructing = False
            _await_signal(lambda: _ask_to_end(engine, actor))
            news.tell(None)
            if idle_after := environ.get(ENV_ACTOR_IDLE_TIMEOUT):
                _start_daemon(lambda: _watch_idle(engine, actor, float(idle_after), news))
            while True:
                time.sleep(LOOK_SECONDS)
                _probe(engine, actor)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it's the actor's end
            if isinstance(error, ActorDiedError) and error.reason == ENDED_ITSELF:
                news.tell({"ended": ENDED_ITSELF})
            else:
                news.tell(asdict(_describe(error, constructing=constructing)))
    return EXIT_FAILURE


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


def _probe(engine: PoolEngine, actor: RemoteActor) -> None:
    """Return once the actor has come to this call; raises what its constructor raised, or its end."""
    _ask(engine, actor, PROBE)


def _ask(engine: PoolEngine, actor: RemoteActor, method: str) -> Any:
    entry = engine.call_actor(actor, method, (), {}, streaming=False, options=CallOptions())
    ref: ObjectRef[Any] = ObjectRef(engine, entry, method, actor.label)
    return read_ref(ref, None, None)


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


def _watch_idle(engine: PoolEngine, actor: RemoteActor, seconds: float, news: _News) -> None:
    """Tell whether the actor is idle, each time that changes, as long as it lives."""
    idle = False
    with contextlib.suppress(TaskError):  # the main thread tells of its end
        while True:
            time.sleep(LOOK_SECONDS)
            since: float = _ask(engine, actor, IDLE_SECONDS)
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


def _ask_to_end(engine: PoolEngine, actor: RemoteActor) -> None:
    """Ask the actor to end, which ends this process in turn."""
    with contextlib.suppress(TaskError):
        if not _ask(engine, actor, SHUT_DOWN):
            os._exit(EXIT_FAILURE)


def _describe(error: BaseException, *, constructing: bool) -> LastError:
    if isinstance(error, ActorDiedError) and error.__cause__ is not None:
        error = error.__cause__  # what the actor says that it has failed with
    cause = error.__cause__
    shown = cause.traceback if isinstance(cause, RemoteTracebackError) else traceback_of(error)
    message = cut(text_of(error), TEXT_LIMIT)
    return LastError(type_name(error), message, shown[-TRACEBACK_LIMIT:], constructing)
