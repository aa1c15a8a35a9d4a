"""Engine ray in pods: Ray's head beside rank 0's program, workers that join it by a token, how they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

from fray.job import engine_pods, ray_pods
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import EXIT_ATTEMPT_OVER, EXIT_PAYLOAD_CODE, EXIT_WORKER_REFUSED
from tests.pool.hosts.pools import PATIENCE, ROOT, wait_until
from tests.pool.pods.attempt import (
    COUNT_WORDS,
    COUNTED,
    IN_POD,
    KEEP_BUSY,
    Attempt,
    identity,
    read_line,
    running_attempt,
)

PROGRAM = (
    IN_POD
    + """
import json
from fray.job import ray_node, ray_pods
ports = json.loads(os.environ["TEST_PORTS"])
ray_node.PORTS = ray_node.Ports(*ports[1:7])
ray_node.RAY_WORKER_PORTS = (ports[7], ports[-1])
build_start = ray_node.build_start
ray_node.build_start = lambda *where, **how: [*build_start(*where, **how), os.environ["TEST_TEMP"]]
if "TEST_VERSIONS" in os.environ:
    ray_pods.read_versions = lambda: ray_node.Versions(*json.loads(os.environ["TEST_VERSIONS"]))
sys.exit(ray_pods.main(json.loads(os.environ["TEST_ARGUMENTS"]), os.environ))
"""
)
PROGRAMS_IN_POD = """
import sys
words = sys.orig_argv
if any(word.endswith(("agent.py", "agent/main.py", "log_monitor.py")) for word in words):
    import os, time
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)
"""
"""For programs that Ray starts. Those that only watch others do nothing here, and never say their ports."""
MAIN = """
import functools, json, os, sys
answers = open(os.dup(1), "w")
os.dup2(2, 1)
print = functools.partial(print, file=answers, flush=True)
for line in sys.stdin:
    exec(json.loads(line))
"""
"""What Ray prints by itself is no answer."""
GONE = """
import ray, time
ray.init(ignore_reinit_error=True)
while any(node["Alive"] and node["Resources"].get("CPU") for node in ray.nodes()):
    time.sleep(0.05)
print("gone")
"""
REFUSED = """
import ray
from fray.errors import UnschedulableError
from fray.job import TaskOptions, get_default_job_ctx
ctx = get_default_job_ctx()
try:
    ctx.get(ctx.run(abs, -1, options=TaskOptions(resources={"CPU": 3})))
except UnschedulableError as error:
    print(error.message.partition(" ")[2])
"""
HELD = """
import pathlib, ray, time
ray.init()
@ray.remote(num_cpus=1)
def held(folder):
    with open(folder + "/runs", "a") as runs:
        runs.write("x")
    while not pathlib.Path(folder, "go").exists():
        time.sleep(0.05)
    return "done"
print(ray.get(held.remote({folder!r})))
"""


SHAPE, HAS = "CPU=1,memory=300000000", "CPU: 1, memory: 300000000"
"""What a worker has: as a variable says it, and as errors do."""
Worker: TypeAlias = "subprocess.Popen[str]"


class RayAttempt:
    """The pods of an attempt of engine ray."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.started: list[subprocess.Popen[str]] = []
        self.head_port = find_ports(0)[0]
        self.demand: subprocess.Popen[str] | None = None

    def start(self, arguments: list[str], pod: int, **more: str) -> subprocess.Popen[str]:
        """Start a program of a pod. The ports can't be those of pods: Ray listens at all addresses."""
        own = {
            "TEST_PORTS": json.dumps([*find_ports(pod)]),
            "FRAY_POOL_HEAD": f"rank-0:{self.head_port}",
            "TEST_ARGUMENTS": json.dumps(arguments),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.attempt.folder / f"token-{pod}"),
            "TEST_TEMP": f"--temp-dir={self.attempt.folder / f'r{pod}'}",
            # A head finds soon that nothing listens, and waits as long as ever for what is slow.
            "RAY_health_check_period_ms": "500",
            "FRAY_WORKERS_ENGINE": "ray",
            "PYTHONPATH": str(self.attempt.folder / "plain"),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, **self.attempt.variables(pod), **own, **more},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if arguments in (["worker"], ["demand"]) else None,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start_rank(self, rank: int, **more: str) -> subprocess.Popen[str]:
        """Start a rank, whose program runs what it's sent; return when its part of Ray is there."""
        arguments = ["host", sys.executable, "-c", MAIN]
        process = self.start(arguments, 0 if rank == 0 else 100 + rank, **identity(rank), **more)
        send(process, "print('begun')")
        assert read_line(process) == "begun\n"
        return process

    def start_demand(self) -> None:
        """Start who asks for workers, in the pod of rank 0."""
        bounds = {"FRAY_WORKERS_MIN": "0", "FRAY_WORKERS_MAX": "2", "FRAY_WORKERS_IDLE_SECONDS": "1"}
        self.demand = self.start(["demand"], 0, FRAY_WORKERS_SHAPE=SHAPE, **bounds, **identity(0))

    def start_worker(self, pod: int, **more: str) -> subprocess.Popen[str]:
        """Start the program of a worker's pod."""
        return self.start(["worker"], pod, FRAY_WORKERS_SHAPE=SHAPE, **more)

    def start_workers_until(self, runs: Callable[[], bool], pods: Iterable[int]) -> tuple[Worker, int]:
        """Start a worker, and the next one where it's let go, as a Job does; return who `runs`, and its pod.

        On a busy machine Ray's head thinks for a second or two that a new node idles.
        """
        for pod in pods:
            worker = self.start_worker(pod)
            wait_until(partial(_is_decided, worker, runs))
            if runs():
                return worker, pod
        raise AssertionError("all were let go")

    def end(self) -> None:
        """End everything that was started."""
        for process in self.started:
            kill(process)
            process.communicate(timeout=PATIENCE)


def _is_decided(worker: Worker, runs: Callable[[], bool]) -> bool:
    return runs() or worker.poll() is not None


def kill(process: subprocess.Popen[str]) -> None:
    """End a pod at once, with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def find_ports(pod: int) -> range:
    """Return the ports of a pod, below those of outgoing connections; no two tests have the same."""
    first = 20_000 + os.getpid() % 50 * 200 + pod % 9 * 20
    return range(first, first + 20)


def send(process: subprocess.Popen[str], code: str) -> None:
    """Let the program of a rank run code."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(code) + "\n")
    process.stdin.flush()


@pytest.fixture(scope="module")
def ray(key: Path) -> Iterator[RayAttempt]:
    # Paths of Ray's sockets have room for 107 characters.
    with TemporaryDirectory(prefix="ray") as folder, running_attempt(key, Path(folder)) as attempt:
        # As with `ray` instead of `ray[default]`: without the dashboard, which takes long to start.
        Path(folder, "plain").mkdir()
        Path(folder, "plain", "aiohttp_cors.py").write_text("raise ModuleNotFoundError\n")
        Path(folder, "plain", "sitecustomize.py").write_text(PROGRAMS_IN_POD)
        made = RayAttempt(attempt)
        try:
            attempt.show_rank_0()
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def rank_0(ray: RayAttempt) -> subprocess.Popen[str]:
    # As in a pod, it is there before the head, and stays if it has to wait.
    ray.start_demand()
    return ray.start_rank(0)


def test_workers_follow_the_work_of_a_context(ray: RayAttempt, rank_0: subprocess.Popen[str]) -> None:
    api = ray.attempt.api
    send(rank_0, COUNT_WORDS)
    wait_until(lambda: api.scale == 2)
    workers = [ray.start_worker(1), ray.start_worker(2)]
    assert read_line(rank_0) == COUNTED
    wait_until(lambda: api.scale == 0)
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]


def test_who_asks_for_workers_may_end_and_the_next_one_goes_on(
    ray: RayAttempt, rank_0: subprocess.Popen[str]
) -> None:
    api = ray.attempt.api
    assert ray.demand is not None
    kill(ray.demand)
    send(rank_0, "waits = ctx.run(abs, -1); print('asked')")
    assert read_line(rank_0) == "asked\n"
    ray.start_demand()
    wait_until(lambda: api.scale == 1)
    worker = ray.start_worker(7)
    send(rank_0, "print(ctx.get(waits)); del waits")
    assert read_line(rank_0) == "1\n"
    wait_until(lambda: api.scale == 0)
    assert worker.wait(PATIENCE) == 0
    ray.demand.send_signal(signal.SIGTERM)
    assert ray.demand.wait(PATIENCE) == 0
    ray.start_demand()


def test_what_no_worker_can_ever_hold_is_refused_by_a_context_and_told_of_what_asks_ray_itself(
    ray: RayAttempt, rank_0: subprocess.Popen[str]
) -> None:
    send(rank_0, REFUSED)
    assert read_line(rank_0) == f"asks for CPU: 3, which no worker has (the largest has {HAS})\n"
    send(rank_0, "waits = ray.remote(num_cpus=5)(lambda: 1).remote(); print('asked')")
    assert read_line(rank_0) == "asked\n"
    assert ray.demand is not None
    assert ray.demand.stderr is not None
    told = next(line for line in ray.demand.stderr if "can ever hold" in line)
    assert f"No worker can ever hold CPU: 5 (each has {HAS}), for which 1 tasks or actors wait" in told
    send(rank_0, "ray.cancel(waits); del waits; print('cancelled')")
    assert read_line(rank_0) == "cancelled\n"


def test_a_lost_worker_costs_no_answer_and_one_that_is_asked_to_go_ends_its_task(
    ray: RayAttempt, rank_0: subprocess.Popen[str], tmp_path: Path
) -> None:
    rank_1 = ray.start_rank(1)
    send(rank_1, HELD.format(folder=str(tmp_path)))
    runs = tmp_path / "runs"
    # A worker that is there before the task would be idle, and drained.
    wait_until(lambda: ray.attempt.api.scale > 0)
    lost, pod = ray.start_workers_until(lambda: runs.exists() and runs.read_text() == "x", (3, 4))
    # Ray may run the task before Fray's worker has seen that its node is there.
    wait_until(lambda: ray.attempt.ask(pod) == 200)
    kill(lost)
    # A second node would be idle, and drained, for as long as the head thinks that the first one runs.
    send(rank_0, GONE)
    assert read_line(rank_0) == "gone\n"
    second, pod = ray.start_workers_until(lambda: runs.read_text() == "xx", (5, 6))
    second.send_signal(signal.SIGTERM)
    wait_until(lambda: ray.attempt.ask(pod) == 503)
    (tmp_path / "go").touch()
    assert read_line(rank_1) == "done\n"
    assert second.wait(PATIENCE) == 0


def test_of_workers_that_users_want_no_more_one_goes_once_its_tasks_have_ended(
    ray: RayAttempt, rank_0: subprocess.Popen[str], tmp_path: Path
) -> None:
    api = ray.attempt.api
    assert ray.demand is not None
    kill(ray.demand)
    api.set_scale(2)
    by_users = ray.start(["demand"], 0, FRAY_WORKERS_MIN="0", **identity(0))
    workers = [ray.start_worker(7), ray.start_worker(8)]
    wait_until(lambda: all(ray.attempt.ask(pod) == 200 for pod in (7, 8)))
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    send(rank_0, KEEP_BUSY.format(runs=str(runs), stop=str(stop)))
    wait_until(lambda: runs.exists() and runs.stat().st_size > 8)
    api.set_scale(1)
    wait_until(lambda: any(worker.poll() is not None for worker in workers))
    assert sorted(str(worker.poll()) for worker in workers) == ["0", "None"]
    stop.touch()
    assert read_line(rank_0) == "True\n"
    # One that keeps an object in use isn't idle for Ray, and goes all the same.
    send(rank_0, "kept = ctx.run(bytes, 2_000_000); ctx.wait([kept]); print('kept')")
    assert read_line(rank_0) == "kept\n"
    api.set_scale(0)
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]
    send(rank_0, "del kept; print('let go')")
    assert read_line(rank_0) == "let go\n"
    assert api.scales[-3:] == [2, 1, 0], "nobody but users writes it"
    kill(by_users)
    ray.start_demand()


@pytest.mark.parametrize("shown", [{"RAY_AUTH_TOKEN": "of another job"}, {"RAY_AUTH_MODE": "disabled"}])
def test_strangers_are_refused(shown: dict[str, str], ray: RayAttempt, rank_0: subprocess.Popen[str]) -> None:
    address = f"{ray.attempt.address(0)}:{ray.head_port}"
    program = f"from ray._raylet import GcsClient; GcsClient(address={address!r}).get_all_node_info()"
    environ = {**os.environ, "RAY_AUTH_MODE": "token", **shown}
    stranger = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert stranger.returncode != 0
    assert "nauthenticated" in stranger.stderr


def test_a_worker_with_other_versions_is_refused(ray: RayAttempt, rank_0: subprocess.Popen[str]) -> None:
    worker = ray.start_worker(5, TEST_VERSIONS=json.dumps(["3.9", "1", "2"]))
    assert worker.wait(PATIENCE) == EXIT_WORKER_REFUSED
    assert worker.stderr is not None
    assert "It has Python 3.9, ray 1 and Fray 2; the head has Python 3." in worker.stderr.read()


def test_workers_end_with_the_attempt(ray: RayAttempt, rank_0: subprocess.Popen[str]) -> None:
    """The last test: it ends what the others use."""
    send(rank_0, "held = ctx.run(__import__('time').sleep, 600)")
    worker = ray.start_worker(6)
    wait_until(lambda: ray.attempt.ask(6) == 200)
    kill(rank_0)
    ray.attempt.show_rank_0(phase="Failed")
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER


@pytest.mark.parametrize("role", [["host", "true"], ["worker"], ["demand"]])
def test_an_image_without_ray_is_told_what_to_write(
    role: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(engine_pods, "TERMINATION_LOG", str(log))
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (
        ray_pods.main(role, {"FRAY_JOB_NAME": "score", "FRAY_ATTEMPT": "1", **identity(0)})
        == EXIT_PAYLOAD_CODE
    )
    assert "Add `ray` to the image, or to spec.environment.pipPackages" in capsys.readouterr().err
    told = TerminationMessage.from_json(log.read_text())
    assert told is not None
    assert told.ending is Ending.NEVER_RAN
    assert "Add `ray` to the image" in told.message
