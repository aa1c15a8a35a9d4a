"""Named actors on this machine: shared by the jobs of one root, and by programs that were started apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fray.client import Client
from fray.cluster import Entrypoint, JobRequest, LocalCluster, current_cluster
from fray.errors import ActorDiedError, ActorNotFoundError, ActorUnavailableError
from fray.job import ActorOptions, create_job_ctx, get_default_job_ctx, lookup_endpoint, register_endpoint
from fray.types import JobId
from tests.actors import programs
from tests.local.harness import run_root
from tests.pool.hosts.pools import PATIENCE, wait_until


class Counter:
    """Counts, and can be ended."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def say(self, text: str) -> None:
        print(text, flush=True)


def count(start: int) -> int:
    """What each of two jobs does: one creates the actor, whichever is first."""
    ctx = get_default_job_ctx()
    assert lookup_endpoint("lab/server").metadata == {"version": "3"}
    counter = ctx.create_actor(Counter, start, name="lab/counter", get_if_exists=True)
    return ctx.get(counter.add.remote(start))  # type: ignore[no-any-return]


def launch_two() -> Any:
    """A root job: two children share an actor, which it finds; another one of its own is detached."""
    cluster, ctx = current_cluster(), get_default_job_ctx()
    register_endpoint("lab/server", "127.0.0.1:1")
    register_endpoint("lab/server", "127.0.0.1:2", {"version": "3"})
    jobs = [cluster.launch(JobRequest(f"count-{n}", Entrypoint.from_callable(count, [10]))) for n in (1, 2)]
    cluster.wait(jobs, raise_on_failure=True)
    counted = sorted(cluster.outcome(job).result() for job in jobs)  # type: ignore[union-attr]
    ctx.create_actor(Counter, 5, name="lab/kept", lifetime="detached").add.remote(1).result()
    return counted, ctx.get(ctx.get_actor("lab/counter").add.remote(0))


def test_jobs_of_a_root_share_an_actor_and_a_detached_one_is_found_by_other_programs(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    assert run_root(cluster, launch_two, tmp_path) == ([20, 30], 30)
    wait_until(lambda: [actor.spec.name for actor in cluster.get_actors()] == ["lab/kept"])
    pods = cluster._state.root / "actors" / "pods"
    wait_until(lambda: len(list(pods.glob("*/payload"))) == 1)
    assert len(list(pods.glob("lab-*"))) == 2  # what the other one printed stays with its job
    endpoints = cluster._state.root / "actors" / "configmaps"
    assert [path for path in endpoints.glob("*") if "lab/server" in path.read_text()]
    cluster.delete(JobId("root"))
    assert not [path for path in endpoints.glob("*") if "lab/server" in path.read_text()]
    assert [folder.name[:8] for folder in pods.glob("*")] == ["lab-kept"]
    with pytest.raises(ActorNotFoundError):
        cluster.get_actor("lab/counter")

    kept = cluster.get_actor("lab/kept")
    assert kept.add.remote(1).result(PATIENCE) == 7
    spilled = tmp_path / "spilled"
    spilled.mkdir()
    called = subprocess.run(
        [sys.executable, "-m", "fray.cli", "actors", "call", "lab/kept", "add", "[2]"],
        env={**os.environ, "FRAY_SPILL_DIR": str(spilled)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (called.stdout, called.stderr) == ("9\n", "")
    assert list(spilled.glob("*/*")) == []

    kept.say.remote("before").result(PATIENCE)
    followed = cluster.actor_logs(cluster.find_actor("lab/kept"), follow=True)
    assert next(line for line in followed if line.text == "before").slice_index == 0

    # Its process is started again, with fresh state; the old handle never reaches that.
    os.kill(kept.pid.remote().result(PATIENCE), signal.SIGKILL)
    wait_until(lambda: cluster.get_actors()[0].status.restarts == 1)
    with pytest.raises((ActorDiedError, ActorUnavailableError)):
        kept.add.remote(1).result(PATIENCE)
    assert cluster.get_actor("lab/kept").add.remote(1).result(PATIENCE) == 6
    (ready,) = cluster.find_actor("lab/kept").status.conditions
    assert (ready.type, ready.status) == ("Ready", "True")
    cluster.delete_actor(cluster.find_actor("lab/kept"))
    with pytest.raises(ActorDiedError, match="deleted"):
        kept.add.remote(1)
    wait_until(lambda: list(pods.glob("*/payload")) == [])
    # Until it is gone, and through its restart.
    assert any("the actor has ended" in line.text for line in followed)


def found(name: str) -> int:
    """Create an actor where this runs."""
    counter = LocalCluster().create_actor(Counter, 5, name=name)
    return counter.add.remote(1).result(PATIENCE)  # type: ignore[no-any-return]


class Founder:
    """Creates actors."""

    def found(self, name: str) -> int:
        return found(name)


def test_an_actor_outlives_the_task_or_the_actor_that_was_the_first_to_need_it(cluster: LocalCluster) -> None:
    with create_job_ctx("pool", max_workers=1) as ctx:
        assert ctx.get(ctx.run(found, "lab/of-task"), timeout=PATIENCE) == 6
    founder = cluster.create_actor(Founder, name="lab/founder")
    assert founder.found.remote("lab/of-actor").result(PATIENCE) == 6
    cluster.delete_actor(cluster.find_actor("lab/founder"))
    folders = cluster._state.root / "actors" / "pods"
    wait_until(lambda: list(folders.glob("lab-founder*/payload")) == [])
    for name in ("lab/of-task", "lab/of-actor"):
        assert cluster.get_actor(name).add.remote(1).result(PATIENCE) == 7


def find_supervisor(pid: int) -> int:
    """Return the process that supervises the actor in which this one is."""
    while b"local_pod" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_a_supervisor_that_is_killed_leaves_nothing_once_the_actor_runs_again(cluster: LocalCluster) -> None:
    counter = cluster.create_actor(Counter, name="lab/counter")
    killed = find_supervisor(counter.pid.remote().result(PATIENCE))
    (noted,) = (cluster._state.root / "actors" / "pods").glob("*/sockets")
    left = Path(noted.read_text())
    assert left.is_dir()
    os.kill(killed, signal.SIGKILL)
    with pytest.raises((ActorDiedError, ActorUnavailableError)):
        wait_until(lambda: counter.add.remote(1).result(PATIENCE) == 0)  # it ends when a call fails
    assert cluster.get_actor("lab/counter").add.remote(1).result(PATIENCE) == 1
    assert (left.exists(), Path(noted.read_text()).is_dir()) == (False, True)


def test_a_member_fails_passes_its_handle_on_and_has_time_for_its_end(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    group = Client(cluster).create_actor_group(programs.Pupil, told, name="pupils", count=1)
    (pupil,) = group.wait_ready(timeout=PATIENCE)
    assert pupil.myself.remote().result(PATIENCE) == pupil
    with pytest.raises(ActorDiedError):
        pupil.fail.remote().result(PATIENCE)
    wait_until(lambda: cluster.get_actors()[0].status.restarts == 1)
    (member,) = cluster.get_actors()[0].status.members
    assert member.last_error is not None
    assert (member.last_error.type, member.last_error.message) == ("BufferError", "out of lessons")
    again = cluster.get_actor("pupils-0")
    assert again.myself.remote().result(PATIENCE) == pupil
    assert not told.exists()
    group.shutdown()
    wait_until(told.exists)


def test_an_actor_that_nobody_calls_ends_and_one_that_is_done(cluster: LocalCluster, tmp_path: Path) -> None:
    options = ActorOptions(idle_timeout=1)
    counter = cluster.create_actor(Counter, name="counter", options=options)
    assert counter.add.remote(1).result(PATIENCE) == 1
    wait_until(lambda: cluster.get_actors() == [])

    def is_told() -> bool:
        try:
            counter.add.remote(1).result(PATIENCE)  # its process may take calls for a moment still
        except ActorDiedError as died:
            return "deleted" in died.reason
        return False

    wait_until(is_told)
    group = cluster.create_actor_group(programs.Pupil, tmp_path / "told", name="pupils", count=1)
    group.handles[0].graduate.remote().result(PATIENCE)
    wait_until(lambda: cluster.get_actors() == [])


def test_an_actor_that_a_program_creates_begins_without_any_call(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    class Server:
        def __init__(self, begun: Path) -> None:
            begun.touch()

    cluster.create_actor(Server, tmp_path / "begun", name="server")
    wait_until((tmp_path / "begun").exists)


def test_a_program_creates_a_group_and_its_members_know_their_index(cluster: LocalCluster) -> None:
    class Seat:
        def __init__(self) -> None:
            from fray.job import current_actor  # noqa: PLC0415 - pickled by value

            self.place = current_actor().index

        def where(self) -> int:
            return self.place

    group = Client(cluster).create_actor_group(Seat, name="crew", count=2)
    members = group.wait_ready(timeout=PATIENCE)
    assert [each.where.remote().result(PATIENCE) for each in members] == [0, 1]
    assert cluster.get_actor("crew-1") == members[1]
    group.shutdown()
    assert cluster.get_actors() == []
