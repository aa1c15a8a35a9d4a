"""The pods of an attempt on this machine: each has a loopback address, and an API server knows them.

So the ports are those of pods. Nothing of the programs is replaced but how they reach the API server, and how
long workers stay.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fray.job import JobContext
from fray.job.pool import join_pool
from fray.runtime.pool.view import PoolView
from tests.pool.hosts.pools import PATIENCE, ROOT, wait_until

__all__ = [
    "COUNTED",
    "COUNT_WORDS",
    "HEAD_PORT",
    "IN_POD",
    "KEEP_BUSY",
    "METRICS_PORT",
    "NESTED",
    "Api",
    "Attempt",
    "identity",
    "read_line",
    "running_attempt",
]

HEAD_PORT = 7077
READY_PORT = 7096
METRICS_PORT = 7099
IN_POD = """
import os, sys
from pathlib import Path
from fray.runtime.api.client import ApiAccess
access = ApiAccess(os.environ["TEST_API"], "ml", Path(os.environ["TEST_TOKEN"]))
ApiAccess.in_pod = classmethod(lambda cls, environ: access)
"""
_WORKER = (
    IN_POD
    + """
from fray.runtime.pool import worker_pod
worker_pod.DRAIN_SECONDS = float(os.environ.get("TEST_DRAIN_SECONDS") or worker_pod.DRAIN_SECONDS)
sys.exit(worker_pod.main())
"""
)
_HEAD = (
    IN_POD
    + """
from fray.runtime.pool.head import program
from fray.runtime.pool.head_pod import main
def find_stall(state, now):
    if Path(os.environ["TEST_DEFECT"]).exists():
        raise RuntimeError("a defect")
    return ()
if "TEST_DEFECT" in os.environ:
    program.PoolState.find_stall = find_stall
sys.exit(main())
"""
)
_SQUARE = """
from fray.job import get_default_job_ctx
context = get_default_job_ctx()
print(context.get(context.run(pow, 12, 2)), flush=True)
"""

COUNT_WORDS = """
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
texts = ["a b a", "b c", "a c c"]
def count(text):
    from collections import Counter
    return Counter(text.split())
total = sum(ctx.get([ctx.run(count, text) for text in texts]), count(""))
print(sorted(total.items()), flush=True)
"""
"""A main program of any engine."""
COUNTED = "[('a', 3), ('b', 2), ('c', 3)]\n"
"""What it prints."""
KEEP_BUSY = """
from collections import deque
from pathlib import Path
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
def run_noted(runs):
    import time
    with open(runs, "a") as log:
        log.write("x")
    time.sleep(0.05)
    return 1
refs, count = deque(ctx.run(run_noted, {runs!r}) for _ in range(8)), 0
while not Path({stop!r}).exists():
    count += ctx.get(refs.popleft())
    refs.append(ctx.run(run_noted, {runs!r}))
count += sum(ctx.get(list(refs)))
print(count == Path({runs!r}).stat().st_size or (count, Path({runs!r}).stat().st_size), flush=True)
"""
"""A main program of any engine that leaves no worker idle until a file is there; then it prints whether each
task ran once."""


NESTED = """
from pathlib import Path
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
def ask_a_child(begun, go):
    import time
    Path(begun).touch()
    while not Path(go).exists():
        time.sleep(0.05)
    inner = get_default_job_ctx()
    return inner.get(inner.run(abs, -42))
print(ctx.get(ctx.run(ask_a_child, {begun!r}, {go!r})), flush=True)
"""
"""A main program of any engine with a task that, once it may, waits for a task of its own."""


class Api:
    """An API server that knows pods: it lists them, and a watch ends with the next change."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.workers: dict[str, dict[str, Any]] = {}
        """Their pods by name; none is listed, since it lacks the labels of rank 0."""
        self.scale = 0
        """`spec.replicas` of the job."""
        self.scale_reads = 0
        """How often somebody asked for it."""
        self.scales: list[int] = []
        """What it was set to, in order."""
        self._changed = threading.Condition()
        self._version = 1

    def show(self, uid: str, address: str, **status: Any) -> None:
        """Let a pod of rank 0 be there, or change it."""
        with self._changed:
            metadata = {"name": f"rank-0-{uid}", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
            self.pods[uid] = {
                "metadata": metadata,
                "status": {"phase": "Running", "podIP": address, **status},
            }
            self._note()

    def show_worker(self, name: str, **metadata: str) -> None:
        """Let the pod of a worker be there, or change it."""
        with self._changed:
            self.workers[name] = {"kind": "Pod", "metadata": {"name": name, **metadata}}

    def remove(self, uid: str) -> None:
        """Let a pod be gone."""
        with self._changed:
            del self.pods[uid]
            self._note()

    def set_scale(self, replicas: int) -> None:
        """Change how many workers the job asks for."""
        with self._changed:
            self.scale = replicas
            self.scales.append(replicas)
            self._note()

    def set_scale_and_await(self, replicas: int) -> None:
        """Change it, and return once somebody has acted on it: who asks again has done so."""
        self.set_scale(replicas)
        reads = self.scale_reads
        wait_until(lambda: self.scale_reads >= reads + 2)

    def list_pods(self) -> dict[str, Any]:
        """Return the list of pods."""
        with self._changed:
            return {
                "kind": "PodList",
                "metadata": {"resourceVersion": str(self._version)},
                "items": list(self.pods.values()),
            }

    def await_change(self, version: int, seconds: float) -> None:
        """Return when something has changed since `version`, or after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > version, seconds)

    def _note(self) -> None:
        self._version += 1
        self._changed.notify_all()


@contextmanager
def serving(api: Api) -> Iterator[str]:
    """Serve it; give the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            if "watch" in query:
                seconds = float(query["timeoutSeconds"][0])
                api.await_change(int(query["resourceVersion"][0]), min(seconds, PATIENCE))
                self._answer(b"")  # the watch is over: who waits lists again
            elif parts.path.endswith("/scale"):
                api.scale_reads += 1
                self._answer(json.dumps(_scale(api)).encode())
            elif parts.path.endswith("/pods"):
                self._answer(json.dumps(api.list_pods()).encode())
            elif (pod := api.workers.get(parts.path.rpartition("/")[2])) is not None:
                self._answer(json.dumps(pod).encode())
            else:
                self.send_error(404)

        def do_PATCH(self) -> None:
            changes = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.set_scale(changes["spec"]["replicas"])
            self._answer(json.dumps(_scale(api)).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _scale(api: Api) -> dict[str, Any]:
    return {
        "kind": "Scale",
        "metadata": {"uid": "job", "resourceVersion": "1"},
        "spec": {"replicas": api.scale},
    }


@dataclass
class Attempt:
    """The pods of an attempt; the first address is that of rank 0."""

    api: Api
    url: str
    key: Path
    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    contexts: list[JobContext] = field(default_factory=list)

    def address(self, pod: int) -> str:
        """Return the address of a pod: no two processes that run tests have the same."""
        own = os.getpid() % 65_000
        return f"127.{100 + own // 250 % 100}.{1 + own % 250}.{1 + pod}"

    def variables(self, pod: int, **more: str) -> dict[str, str]:
        """Return the variables of a pod."""
        known = {
            "FRAY_POOL_HEAD": f"rank-0:{HEAD_PORT}",
            "FRAY_POOL_KEY": str(self.key),
            "FRAY_POOL_OBJECTS": f"tcp:{self.address(pod)}:7078-7095",
            "FRAY_JOB_NAME": "train",
            "FRAY_JOB_UID": "job",
            "FRAY_ATTEMPT": "1",
            "TEST_API": self.url,
            "TEST_TOKEN": str(self.folder / "token"),
        }
        return {**known, **more}

    def show_rank_0(self, **status: Any) -> None:
        """Let the API server know the pod of rank 0."""
        self.api.show("rank-0", self.address(0), **status)

    def start_head(self, **more: str) -> subprocess.Popen[str]:
        """Start the head, and return when it listens."""
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        own = {"FRAY_POOL_HEAD": f"tcp:{self.address(0)}:{HEAD_PORT}", "FRAY_POOL_STATE": str(state)}
        head = self.start(_HEAD, **self.variables(0, **own, **more))
        assert head.stdout is not None
        told = head.stdout.readline()
        assert told == f"listening on tcp:{self.address(0)}:{HEAD_PORT}\n", told
        return head

    def start_rank_0_head(self, **more: str) -> str:
        """Start the head as on rank 0, on any port; return what FRAY_POOL_HEAD is for others."""
        head = self.start(_HEAD, **{**self.variables(0, **identity(0), **more), "FRAY_POOL_HEAD": "rank-0:0"})
        assert head.stdout is not None
        told = (line.rpartition("listening on tcp:") for line in head.stdout)
        return next(f"rank-0:{address.rpartition(':')[2].strip()}" for _, tcp, address in told if tcp)

    def start_worker(self, pod: int = 1, **more: str) -> subprocess.Popen[str]:
        """Start the program of a worker's pod."""
        return self.start(_WORKER, **self.variables(pod, **more))

    def start_rank(self, rank: int, program: str = _SQUARE, **more: str) -> subprocess.Popen[str]:
        """Start the main process of a rank, which by default prints the square of 12."""
        return self.start(IN_POD + program, **self.variables(100 + rank, **identity(rank), **more))

    def start(self, program: str, **variables: str) -> subprocess.Popen[str]:
        """Start a program."""
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, **variables},
            text=True,
            stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def read_view(self) -> PoolView:
        """Return what the head shows of the pool, if it was started with a port for that."""
        with urllib.request.urlopen(f"http://{self.address(0)}:{METRICS_PORT}/pool.json") as page:
            return PoolView.from_json(page.read())

    def join(self) -> JobContext:
        """Make this process a client."""
        variables = self.variables(200, FRAY_POOL_HEAD=f"tcp:{self.address(0)}:{HEAD_PORT}")
        self.contexts.append(join_pool(variables))
        return self.contexts[-1]

    def ask(self, pod: int, path: str = "/ready") -> int:
        """Return the status of a worker's answer; 0: it doesn't listen."""
        connection = http.client.HTTPConnection(self.address(pod), READY_PORT, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            return 0
        finally:
            connection.close()

    def close(self) -> None:
        """End everything, the clients first."""
        for context in self.contexts:
            context.shutdown()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.communicate(timeout=PATIENCE)


def identity(rank: int) -> dict[str, str]:
    """Return the variables that say which process of its gang a main process is."""
    return {
        "FRAY_SLICE": "0",
        "FRAY_NUM_SLICES": "1",
        "FRAY_HOST": str(rank),
        "FRAY_HOSTS_PER_SLICE": "4",
        "FRAY_COORDINATOR_ADDRESS": "train-slice-0-0.train:8476",
    }


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def running_attempt(key: Path, folder: Path) -> Iterator[Attempt]:
    """Give an attempt of which nothing runs yet."""
    (folder / "token").write_text("token\n")
    api = Api()
    with serving(api) as url:
        attempt = Attempt(api, url, key, folder)
        try:
            yield attempt
        finally:
            attempt.close()
