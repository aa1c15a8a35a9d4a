"""Signals at any moment of a main thread that uses its pool, as programs: pytest has handlers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.pool.hosts.pools import PATIENCE, ROOT

INTERRUPTS = 300

CALLS = f"""
import os, random, signal, sys, threading, time
from fray.job import create_job_ctx
from fray.runtime.termination_signal import exit_on_termination
from tests.pool.clients import programs

SIGNALS = (signal.SIGINT, signal.SIGTERM)
chance = random.Random(int(sys.argv[1]))
armed, sent = threading.Event(), threading.Event()

def send_signals():
    while armed.wait():
        armed.clear()
        time.sleep(chance.random() * 0.002)
        sent.set()
        os.kill(os.getpid(), chance.choice(SIGNALS))

with create_job_ctx("pool", max_workers=1, head="process") as ctx, exit_on_termination():
    handlers = [signal.getsignal(number) for number in SIGNALS]
    counter = ctx.create_actor(programs.Counter)
    before = ctx.get(counter.add.remote(1))
    threading.Thread(target=send_signals, daemon=True).start()
    interrupts = swallowed = 0
    while interrupts < {INTERRUPTS}:
        try:
            calls = 0
            armed.set()
            while True:
                now = ctx.get(counter.add.remote(1))
                assert now > before, (now, before)
                before = now
                calls += sent.is_set()
                if calls > 3:  # what is raised within a finalizer goes no further
                    calls, swallowed = 0, swallowed + 1
                    sent.clear()
                    armed.set()
        except (KeyboardInterrupt, SystemExit):
            interrupts += 1
            sent.clear()
    # Of calls that were interrupted some were made, though nobody has read their results.
    assert before < ctx.get(counter.add.remote(1), timeout=60) <= before + 1 + interrupts
    assert [signal.getsignal(number) for number in SIGNALS] == handlers
    assert len(ctx.get([counter.add.remote(1) for _ in range(1000)], timeout=60)) == 1000
print("in order")
"""


def run(program: str, *words: str) -> str:
    """Return what a program prints."""
    command = [sys.executable, "-c", program, *words]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_calls_go_on_after_any_interrupt() -> None:
    assert run(CALLS, "20261127") == "in order\n"


BLOCKS = """
import os, select, signal, socket, sys, threading
from fray.runtime.pool.client.undisturbed import Undisturbed
from fray.runtime.termination_signal import exit_on_termination

ours, theirs = socket.socketpair()
silent = select.poll()
silent.register(ours, select.POLLIN)

def send(number):
    os.kill(os.getpid(), number)

def say(*words):
    print(*words, flush=True)

with exit_on_termination():
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(
            """
    try:
        with Undisturbed() as here:
            signal.raise_signal(signal.SIGINT)
            say(here.certain, here.signalled)
    except KeyboardInterrupt:
        say(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""",
            "True True\nTrue\n",
            id="Ctrl-C waits for the end of the block",
        ),
        pytest.param(
            """
    try:
        with Undisturbed() as here:
            threading.Timer(0.05, send, (signal.SIGTERM,)).start()
            say(here.poll(silent, 60_000), here.signalled)
            say(here.poll(silent, 60_000))
    except SystemExit as ended:
        say(ended.code)
""",
            "False True\nFalse\n143\n",
            id="SIGTERM ends the wait",
        ),
        pytest.param(
            """
    try:
        with Undisturbed():
            with Undisturbed():
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
            say("after the inner one")
    except SystemExit as ended:
        say(type(ended.__context__).__name__, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""",
            "after the inner one\nKeyboardInterrupt True\n",
            id="blocks within blocks, and two signals",
        ),
        pytest.param(
            """
    signal.signal(signal.SIGUSR1, lambda *_: say("own"))
    before = signal.getsignal(signal.SIGINT)
    with Undisturbed() as here:
        say(here.certain, signal.getsignal(signal.SIGINT) is before)
        signal.raise_signal(signal.SIGUSR1)
""",
            "False True\nown\n",
            id="handlers of the program stay",
        ),
        pytest.param(
            """
    def fork():
        if child := os.fork():
            say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            try:
                os._exit(0 if signal.getsignal(signal.SIGINT) is signal.default_int_handler else 1)
            finally:
                os._exit(2)
    with Undisturbed():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
""",
            "0\n",
            id="a child of another thread has the usual handlers",
        ),
        pytest.param(
            """
    def look():
        with Undisturbed() as here:
            say(here.certain, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
""",
            "True True\n",
            id="other threads hold nothing",
        ),
    ],
)
def test_blocks(program: str, said: str) -> None:
    assert run(BLOCKS + program) == said


WAITING = """
import os, signal, tempfile, threading
from pathlib import Path
from fray.job import create_job_ctx
from tests.pool.clients import programs

over = Path(tempfile.mkdtemp()) / "over"

def call(number, frame):
    print(ctx.get(counter.add.remote(1), timeout=60), flush=True)
    over.touch()

signal.signal(signal.SIGUSR1, call)
with create_job_ctx("pool", max_workers=2, head="process") as ctx:
    counter = ctx.create_actor(programs.Counter)
    print(ctx.get(counter.add.remote(1)), flush=True)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    print(ctx.get(ctx.run(programs.await_file, over)), flush=True)
"""


def test_handlers_may_wait_for_the_pool() -> None:
    assert run(WAITING) == "1\n2\nNone\n"


FORKING = """
import os, signal, tempfile, threading
from pathlib import Path
from fray.errors import PoolClosedError
from fray.job import create_job_ctx
from tests.pool.clients import programs

over = Path(tempfile.mkdtemp()) / "over"

def fork(number, frame):
    global child
    child = os.fork()
    if child:
        over.touch()

signal.signal(signal.SIGUSR1, fork)
with create_job_ctx("pool", max_workers=1, head="process") as ctx:
    counter = ctx.create_actor(programs.Counter)
    ctx.get(counter.add.remote(1))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        ctx.get(ctx.run(programs.await_file, over), timeout=60)
    except PoolClosedError:
        os._exit(0 if child == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(ctx.get(counter.add.remote(1), timeout=60))
"""


def test_a_child_that_a_handler_forks_within_a_wait_hears_nothing() -> None:
    assert run(FORKING) == "2\n"
