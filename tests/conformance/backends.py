"""The backends that the suite knows. One is a cluster to launch jobs on, and a few facts about it.

A backend joins by one entry in `BACKENDS`. Tests say nothing about where jobs run; where promises differ, a
fact says so here, by the name of what is promised.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fray.cluster import Cluster, Entrypoint, JobRequest, JobStatus, ResourceConfig, create_cluster
from tests.local_ray import running_ray

__all__ = ["BACKENDS", "UV_VARIABLES", "Backend", "set_variables"]

BACK_OFF = 3600
"""Seconds: a job that waits for its next attempt is pending, for longer than any test."""
TOOLS = Path(__file__).parents[2] / ".tools" / "bin"
UV_VARIABLES: Mapping[str, str] = {"PATH": f"{TOOLS}:{os.environ['PATH']}", "UV_OFFLINE": "1"}
"""With which uv is found, and looks for nothing that isn't here."""


@dataclass(frozen=True)
class Backend:
    """A cluster under test.

    Attributes:
        cluster: The cluster.
        python: The command that runs Python where jobs run.
        variables: With which `current_cluster()` of another process of this machine is this cluster.
        own_processes: Whether a callable has a process of its own: variables, memory, an end by force.
        launches_jobs: Whether jobs can launch jobs: whether the client's packages are where they run.
        outlives_launcher: Whether jobs go on when the program that launched them is killed.
        make_pending: Returns a request of this name for a job that stays pending until it is stopped.
        find_left: Returns what jobs have left running, as text for people.
        list_all: Returns all that is there of any job, ended ones too: files, processes, objects.
        restart_server: Restarts what jobs are asked of, where that is a server; returns once it answers.
        describe: Returns how things stand, for people who look for the reason of a failure.
    """

    cluster: Cluster
    python: str
    variables: Mapping[str, str]
    own_processes: bool
    launches_jobs: bool
    outlives_launcher: bool
    make_pending: Callable[[str], JobRequest]
    find_left: Callable[[], list[str]]
    list_all: Callable[[], set[str]]
    restart_server: Callable[[], None] = field(default=lambda: None)
    describe: Callable[[], str] = field(default=lambda: "")


def fails_and_waits(name: str) -> JobRequest:
    return JobRequest(name, Entrypoint.from_command(["sh", "-c", "exit 1"]), max_retries_failure=1)


def waits_for_hardware(name: str) -> JobRequest:
    """A request for a TPU that the cluster hasn't got."""
    return JobRequest(name, Entrypoint.from_command(["true"]), ResourceConfig.with_tpu("v6e-4"))


def processes_with(variable: str, value: object) -> list[str]:
    """Return the processes that have this variable in their environment."""
    mark = f"{variable}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for the length of a `with` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def local(
    spec: str, folder: Path, *, own_processes: bool = True, launches_jobs: bool = True
) -> Iterator[Backend]:
    state = folder / "state"
    settings = {"FRAY_STATE_DIR": str(state), "FRAY_BACKOFF_SECONDS": str(BACK_OFF)}
    with set_variables(settings):
        cluster = create_cluster(spec)
    with cluster:
        yield Backend(
            cluster,
            "python3",
            {**settings, "FRAY_CLUSTER_SPEC": spec},
            own_processes,
            launches_jobs,
            outlives_launcher=False,
            make_pending=fails_and_waits,
            find_left=lambda: processes_with("FRAY_STATE_DIR", state),
            list_all=lambda: {*map(str, state.rglob("*")), *processes_with("FRAY_STATE_DIR", state)},
        )


@contextmanager
def isolated(folder: Path) -> Iterator[Backend]:
    spec = "local?use_isolated_env=true"
    with set_variables(UV_VARIABLES), local(spec, folder, launches_jobs=False) as backend:
        yield backend


@contextmanager
def ray(folder: Path) -> Iterator[Backend]:
    """A Ray with room for every job that the suite launches: all share the two cores of one machine."""
    del folder
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    devices = {"TPU": 4, "TPU-v5p-8-head": 1}
    with (
        set_variables({"PATH": path}),
        running_ray(cpus=1000, memory=1 << 42, resources=devices, dashboard=True) as running,
    ):
        spec = f"ray?address={running.dashboard}"
        variables = {"FRAY_CLUSTER_SPEC": spec, "RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]}
        with create_cluster(spec) as cluster:

            def find_left() -> list[str]:
                jobs = [info.job_id for info in cluster.list_jobs() if not JobStatus.finished(info.status)]
                return [*jobs, *processes_with("RAY_ADDRESS", running.address)]

            yield Backend(
                cluster,
                "python3",
                variables,
                own_processes=True,
                launches_jobs=True,
                outlives_launcher=True,
                make_pending=waits_for_hardware,
                find_left=find_left,
                list_all=lambda: {*(info.job_id for info in cluster.list_jobs()), *find_left()},
            )


@contextmanager
def kubernetes(folder: Path) -> Iterator[Backend]:
    # Not before it is wanted: it needs what the test cluster needs.
    from tests.conformance.kubernetes import open_backend  # noqa: PLC0415

    with open_backend(folder) as backend:
        yield backend


BACKENDS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "local": lambda folder: local("local", folder),
    "threads": lambda folder: local("local?mode=thread", folder, own_processes=False),
    "isolated": isolated,
    "ray": ray,
    "kubernetes": kubernetes,
}
