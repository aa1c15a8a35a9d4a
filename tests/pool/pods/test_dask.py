"""Engine dask in pods: the scheduler beside rank 0, workers that join it over TLS, and how they end."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fray.job.dask_pods import main
from fray.plan.environment import build_dask_tls
from fray.vocabulary import (
    ACCEPTED_FILE,
    CERTIFICATE_FILE,
    EXIT_ATTEMPT_OVER,
    EXIT_FAILURE,
    EXIT_PAYLOAD_CODE,
    EXIT_WORKER_REFUSED,
    PRIVATE_KEY_FILE,
)
from tests.pool.driver.processes import kill
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import (
    COUNT_WORDS,
    COUNTED,
    HEAD_PORT,
    IN_POD,
    KEEP_BUSY,
    NESTED,
    Attempt,
    identity,
    read_line,
)
from tests.pool.transport.certificates import write_key

PROGRAM = (
    IN_POD
    + "\nfrom fray.job.dask_pods import main\nsys.exit(main([os.environ['TEST_PROGRAM']], os.environ))\n"
)
USER = """
from distributed import Client
with Client() as client:
    print(client.submit(pow, 12, 2).result(), flush=True)
"""
LIBRARY = """
from distributed import Client, get_client
def compute():
    return get_client().submit(pow, 12, 2).result()
try:
    get_client()
except ValueError:
    print("no client yet", flush=True)
with Client() as client:
    assert get_client() is client
    print(compute(), flush=True)
"""
"""As code that gets no client by its arguments finds that of its program."""


class DaskAttempt:
    """The pods of an attempt of engine dask."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.tls: dict[str, str] = {}
        self.use_key(attempt.key)

    def use_key(self, key: Path) -> None:
        """Let programs that are started from here on have this key."""
        self.tls = {entry.name: str(entry.value) for entry in build_dask_tls(str(key))}

    def start(self, program: str, pod: int, **more: str) -> subprocess.Popen[str]:
        """Start a program of a pod."""
        address = f"tls://{self.attempt.address(0)}:{HEAD_PORT}"
        own = {**self.tls, "DASK_SCHEDULER_ADDRESS": address}
        return self.attempt.start(program, **self.attempt.variables(pod, **own, **more))

    def start_scheduler(self, **more: str) -> subprocess.Popen[str]:
        """Start the scheduler, and return when it listens."""
        state = self.attempt.folder / "state"
        state.mkdir(exist_ok=True)
        head = f"tcp:{self.attempt.address(0)}:{HEAD_PORT}"
        own = {"FRAY_POOL_HEAD": head, "FRAY_POOL_STATE": str(state), "TEST_PROGRAM": "scheduler"}
        scheduler = self.start(PROGRAM, 0, **own, **more)
        assert read_line(scheduler).startswith("listening on tls://")
        return scheduler

    def start_worker(self, pod: int = 1, **more: str) -> subprocess.Popen[str]:
        """Start the program of a worker's pod."""
        own = {"TEST_PROGRAM": "worker", "FRAY_WORKERS_SHAPE": "CPU=1,memory=300000000"}
        return self.start(PROGRAM, pod, **(own | more))

    def start_rank(self, program: str, rank: int = 1) -> subprocess.Popen[str]:
        """Start the main program of a rank."""
        return self.start(IN_POD + program, 100 + rank, FRAY_WORKERS_ENGINE="dask", **identity(rank))


@pytest.fixture
def dask(attempt: Attempt) -> DaskAttempt:
    attempt.show_rank_0()
    return DaskAttempt(attempt)


def accept_itself(key: Path) -> Path:
    """Let the key's own certificate be accepted, as in the Secret of a namespace."""
    (key / ACCEPTED_FILE).write_bytes((key / CERTIFICATE_FILE).read_bytes())
    return key


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accept_itself(write_key(tmp_path_factory.mktemp("key")))


def test_users_and_contexts_find_the_scheduler_and_run_on_the_workers(dask: DaskAttempt) -> None:
    early = dask.start_worker(1)
    scheduler = dask.start_scheduler()
    dask.start_worker(2)
    users, ours = dask.start_rank(USER), dask.start_rank(COUNT_WORDS, rank=2)
    wait_until(lambda: dask.attempt.ask(1) == dask.attempt.ask(2) == 200)
    assert read_line(users) == "144\n"
    assert read_line(ours) == COUNTED
    # The main container has ended, and with it its pod.
    scheduler.send_signal(signal.SIGTERM)
    assert scheduler.wait(PATIENCE) == 0
    dask.attempt.api.remove("rank-0")
    assert early.wait(PATIENCE) == EXIT_ATTEMPT_OVER


def test_code_that_asks_dask_for_its_client_finds_that_of_the_program(dask: DaskAttempt) -> None:
    dask.start_scheduler()
    dask.start_worker(1)
    program = dask.start_rank(LIBRARY)
    assert read_line(program) == "no client yet\n"
    assert read_line(program) == "144\n"


def test_what_no_worker_can_ever_hold_is_refused_and_the_rest_waits_for_workers(dask: DaskAttempt) -> None:
    bounds = {"FRAY_WORKERS_MAX": "1", "FRAY_WORKERS_MIN": "0", "FRAY_WORKERS_IDLE_SECONDS": "600"}
    dask.start_scheduler(FRAY_WORKERS_SHAPE="CPU=1,gpu=2", **bounds)
    program = dask.start_rank(SHAPES)
    assert read_line(program) == "asks for GPU: 3, which no worker has (the largest has GPU: 2)\n"
    wait_until(lambda: dask.attempt.api.scale == 1)
    dask.start_worker(1, FRAY_WORKERS_SHAPE="CPU=1,memory=300000000,gpu=2")
    assert read_line(program) == "2\n"


def test_before_the_first_worker_what_a_job_without_cpu_in_its_spec_asks_for_waits(
    dask: DaskAttempt,
) -> None:
    dask.start_scheduler()
    program = dask.start_rank(SHAPES.replace("'GPU': 3", "'GPU': 2"))
    dask.start_worker(1, FRAY_WORKERS_SHAPE="CPU=1,memory=300000000,gpu=2")
    assert read_line(program) == "1\n"
    assert read_line(program) == "2\n"


SHAPES = """
from fray.errors import UnschedulableError
from fray.job import TaskOptions, get_default_job_ctx
ctx = get_default_job_ctx()
try:
    print(ctx.get(ctx.run(abs, -1, options=TaskOptions(resources={'GPU': 3}))), flush=True)
except UnschedulableError as error:
    print(error.message.partition(" ")[2], flush=True)
print(ctx.get(ctx.run(abs, -2, options=TaskOptions(resources={'GPU': 2, 'CPU': 1}))), flush=True)
"""


def test_a_worker_that_is_asked_to_go_hands_over_and_ends_with_0(dask: DaskAttempt) -> None:
    dask.start_scheduler()
    first = dask.start_worker(1)
    wait_until(lambda: dask.attempt.ask(1) == 200)
    program = dask.start_rank(HELD)
    assert read_line(program) == "held\n"
    dask.start_worker(2)
    wait_until(lambda: dask.attempt.ask(2) == 200)
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    (dask.attempt.folder / "gone").touch()
    assert read_line(program) == "1 run\n"


HELD = """
import time
from distributed import Client
runs = Path(os.environ["TEST_TOKEN"]).parent
def once():
    with (runs / "runs").open("a") as log:
        log.write("x")
    return 1
client = Client()
held = client.submit(once, pure=False)
held.exception()
print("held", flush=True)
while not (runs / "gone").exists():
    time.sleep(0.05)
print(held.result(), "run" * len((runs / "runs").read_text()), flush=True)
client.close()
"""


def test_a_worker_that_a_program_has_retired_comes_back_and_does_not_end_with_0(dask: DaskAttempt) -> None:
    """Dask's own worker ends well then, and nobody has asked the pod to go."""
    dask.start_scheduler()
    worker = dask.start_worker()
    wait_until(lambda: dask.attempt.ask(1) == 200)
    program = dask.start_rank(RETIRING)
    assert read_line(program) == "1 retired\n"
    assert read_line(program) == "144\n"
    assert worker.poll() is None


RETIRING = f"""
from distributed import Client
with Client() as client:
    print(len(client.retire_workers()), "retired", flush=True)
    print(client.submit(pow, 12, 2).result({PATIENCE}), flush=True)
"""


def test_a_scheduler_that_is_restarted_refuses_to_begin_again(dask: DaskAttempt) -> None:
    scheduler = dask.start_scheduler()
    worker = dask.start_worker()
    wait_until(lambda: dask.attempt.ask(1) == 200)
    scheduler.kill()
    scheduler.wait(PATIENCE)
    own = {"FRAY_POOL_HEAD": f"tcp:{dask.attempt.address(0)}:{HEAD_PORT}", "TEST_PROGRAM": "scheduler"}
    again = dask.start(PROGRAM, 0, FRAY_POOL_STATE=str(dask.attempt.folder / "state"), **own)
    assert again.wait(PATIENCE) == EXIT_FAILURE
    dask.attempt.show_rank_0(phase="Failed")
    assert worker.wait(PATIENCE) == EXIT_ATTEMPT_OVER


def test_strangers_are_refused(dask: DaskAttempt, tmp_path: Path) -> None:
    dask.start_scheduler()
    other = tmp_path / "other"
    other.mkdir()
    dask.use_key(accept_itself(write_key(other)))
    stranger = """
from distributed import Client
try:
    Client(timeout=3)
except OSError:
    print("refused", flush=True)
"""
    assert read_line(dask.start_rank(stranger)) == "refused\n"


def test_tls_below_1_3_is_refused(dask: DaskAttempt) -> None:
    dask.start_scheduler()
    key = dask.attempt.key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(key / ACCEPTED_FILE)
    context.load_cert_chain(key / CERTIFICATE_FILE, key / PRIVATE_KEY_FILE)

    def connect() -> bytes:
        """Return what the scheduler says first."""
        scheduler = (dask.attempt.address(0), HEAD_PORT)
        with (
            socket.create_connection(scheduler, PATIENCE) as plain,
            context.wrap_socket(plain) as secured,
        ):
            return secured.recv(1)

    assert connect()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        connect()


def test_workers_follow_the_work(dask: DaskAttempt) -> None:
    bounds = {"FRAY_WORKERS_MIN": "0", "FRAY_WORKERS_MAX": "2", "FRAY_WORKERS_IDLE_SECONDS": "0.5"}
    dask.start_scheduler(FRAY_WORKERS_SHAPE="CPU=1", **bounds)
    api = dask.attempt.api
    program = dask.start_rank(MANY)
    wait_until(lambda: api.scale == 2)
    workers = [dask.start_worker(1), dask.start_worker(2)]
    assert read_line(program) == "8\n"
    wait_until(lambda: api.scale == 0)
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]


def test_of_workers_that_users_want_no_more_one_goes_once_its_tasks_have_ended(
    dask: DaskAttempt, tmp_path: Path
) -> None:
    api = dask.attempt.api
    api.set_scale(2)
    dask.start_scheduler(FRAY_WORKERS_MIN="0")
    workers = [dask.start_worker(1), dask.start_worker(2)]
    wait_until(lambda: all(dask.attempt.ask(pod) == 200 for pod in (1, 2)))
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    program = dask.start_rank(KEEP_BUSY.format(runs=str(runs), stop=str(stop)))
    wait_until(lambda: runs.exists() and runs.stat().st_size > 8)
    api.set_scale(1)
    wait_until(lambda: any(worker.poll() is not None for worker in workers))
    assert sorted(str(worker.poll()) for worker in workers) == ["0", "None"]
    stop.touch()
    assert read_line(program) == "True\n"
    # One that idles goes at once.
    api.set_scale(0)
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]
    assert api.scales == [2, 1, 0], "the scheduler writes none"


def ask_for_none_at_work(
    dask: DaskAttempt, program: str, folder: Path
) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Have users want the one worker no more while a task of a program runs there, which then goes on.

    Returns the worker and the program.
    """
    dask.attempt.api.set_scale(1)
    dask.start_scheduler(FRAY_WORKERS_MIN="0")
    worker = dask.start_worker()
    begun, go = folder / "begun", folder / "go"
    running = dask.start_rank(program.format(begun=str(begun), go=str(go), patience=PATIENCE))
    wait_until(begun.exists)
    dask.attempt.api.set_scale_and_await(0)
    go.touch()
    return worker, running


def test_a_worker_that_waits_for_a_child_runs_it_once_it_is_wanted_again(
    dask: DaskAttempt, tmp_path: Path
) -> None:
    worker, program = ask_for_none_at_work(dask, NESTED, tmp_path)
    api = dask.attempt.api
    api.set_scale_and_await(1)
    assert read_line(program) == "42\n"
    api.set_scale(0)
    assert worker.wait(PATIENCE) == 0


def test_a_worker_whose_results_nobody_else_can_take_goes_once_they_are_not_needed(
    dask: DaskAttempt, tmp_path: Path
) -> None:
    worker, program = ask_for_none_at_work(dask, HOLDING, tmp_path)
    assert read_line(program) == "8\n"
    assert worker.wait(PATIENCE) == 0


HOLDING = """
import time
from distributed import Client
client = Client()
held = client.submit(bytes, 3_000_000)
held.exception()
def wait_for(begun, go):
    Path(begun).touch()
    while not Path(go).exists():
        time.sleep(0.05)
    return 1
tasks = [client.submit(wait_for, {begun!r}, {go!r}, pure=False) for _ in range(8)]
print(sum(client.gather(tasks)), flush=True)
del held, tasks
time.sleep({patience})
"""


MANY = """
from distributed import Client
with Client() as client:
    print(sum(client.gather(client.map(abs, [1] * 8, pure=False))), flush=True)
"""


def test_a_worker_with_other_versions_is_refused(dask: DaskAttempt) -> None:
    dask.start_scheduler()
    changed = "import fray.job.dask_pods as it\nit._read_versions = lambda: it.Versions('3.9', '1', '2')\n"
    other = PROGRAM.replace("sys.exit", f"{changed}sys.exit")
    worker = dask.start(other, 1, TEST_PROGRAM="worker")
    assert worker.wait(PATIENCE) == EXIT_WORKER_REFUSED


@pytest.mark.parametrize("program", ["scheduler", "worker"])
def test_an_image_without_dask_is_told_what_to_write(
    program: str, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    environ = {**attempt.variables(0), "FRAY_POOL_HEAD": f"tcp:{attempt.address(0)}:{HEAD_PORT}"}
    assert main([program], environ) == EXIT_PAYLOAD_CODE
    assert "Add `distributed` to the image, or to spec.environment.pipPackages" in capsys.readouterr().err


def test_a_lost_worker_costs_no_answer(dask: DaskAttempt) -> None:
    dask.start_scheduler()
    lost = dask.start_worker(1)
    wait_until(lambda: dask.attempt.ask(1) == 200)
    program = dask.start_rank(SLOW)
    assert read_line(program) == "begun\n"
    dask.start_worker(2)
    nanny = psutil.Process(lost.pid)
    kill((nanny.pid, *(child.pid for child in nanny.children(recursive=True))))
    assert read_line(program) == "[0, 1, 4, 9]\n"


SLOW = """
import time
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
begun = Path(os.environ["TEST_TOKEN"]).parent / "begun"
def square(number):
    begun.touch()
    time.sleep(1)
    return number * number
refs = [ctx.run(square, number) for number in range(4)]
while not begun.exists():
    time.sleep(0.05)
print("begun", flush=True)
print(ctx.get(refs), flush=True)
"""
