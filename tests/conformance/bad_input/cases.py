"""What no backend does, each with the error that says so.

What no request can even be made of is in `tests.bad_requests`, what is no cluster spec in `tests.bad_specs`,
and what is about Kubernetes alone in `cluster_cases`.
"""

# ruff: noqa: ARG005 - some cases ask nothing of the backend

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from fray.client import Client, JobHandle, wait_all
from fray.cluster import JobRequest, ResourceConfig, create_cluster, set_current_cluster
from fray.errors import (
    CallArgumentsError,
    ClusterSpecError,
    ClusterUnavailableError,
    FrayError,
    InvalidJobError,
    InvalidOptionError,
    InvalidRequestError,
    JobFileError,
    JobNotFoundError,
    LogsNotFoundError,
    OpenFilesError,
    SerializationError,
    UnknownAcceleratorError,
    UnsupportedFeatureError,
)
from tests.conformance.bad_input.scene import LOCAL, PICKLING, Case, Scene

__all__ = ["CASES"]

MANY_BYTES: Final = 140_000
"""More than a process can have in one argument or variable."""


def greet(name: str) -> str:
    return name


def count() -> Iterator[int]:
    yield 1


def enclose(value: object) -> Callable[[], object]:
    return lambda: value


REQUESTS: Final = [
    Case("launch-text", lambda on: on.cluster.launch("train"), InvalidRequestError, "of type str"),
    Case("launch-callable", lambda on: on.cluster.launch(greet), InvalidRequestError, "of type function"),
    Case("launch-none", lambda on: on.cluster.launch(None), InvalidRequestError, "of type NoneType"),
    Case("submit-dict", lambda on: Client(on.cluster).submit({}), InvalidRequestError, "of type dict"),
    Case(
        "launch-when-taken",
        lambda on: on.cluster.launch(JobRequest("bad", count), when_taken="replace"),
        InvalidRequestError,
        "when_taken: is 'replace'",
    ),
]
CALLS: Final = [
    Case("call-too-few", lambda on: on.call(greet), CallArgumentsError, "'name'"),
    Case("call-too-many", lambda on: on.call(greet, 1, 2), CallArgumentsError, "too many positional"),
    Case("call-unknown-name", lambda on: on.call(greet, "x", nme="x"), CallArgumentsError, "'nme'"),
    Case("call-full-partial", lambda on: on.call(partial(greet, "x"), "y"), CallArgumentsError, "greet()"),
    Case("call-generator", lambda on: on.call(count), InvalidOptionError, "generator function 'count'"),
    Case(
        "call-with-lock",
        lambda on: on.call(greet, {"guard": threading.Lock()}),
        SerializationError,
        "args[0]['guard']",
        PICKLING,
    ),
    Case(
        "call-closure-over-lock",
        lambda on: on.call(enclose(threading.Lock())),
        SerializationError,
        "lock",
        PICKLING,
    ),
]
RESOURCES: Final = [
    Case(
        "region-with-space",
        lambda on: on.launch(resources=ResourceConfig(regions=["us east5"])),
        InvalidJobError,
        "spec.placement.regions[0]: 'us east5'",
    ),
    Case(
        "zone-too-long",
        lambda on: on.launch(resources=ResourceConfig(zones=["z" * 64])),
        InvalidJobError,
        "spec.placement.zones[0]: must have at most 63",
    ),
    Case("queue-illegal", lambda on: on.launch(queue="tpu_queue"), InvalidJobError, "'tpu_queue'"),
    Case("queue-too-long", lambda on: on.launch(queue="q" * 64), InvalidJobError, "spec.queue.name"),
    Case(
        "priority-illegal",
        lambda on: on.launch(queue="tpu", priority_class="High!"),
        InvalidJobError,
        "spec.queue.priorityClass: 'High!'",
    ),
    Case(
        "priority-too-long",
        lambda on: on.launch(queue="tpu", priority_class="p" * 64),
        InvalidJobError,
        "spec.queue.priorityClass",
    ),
    Case(
        "priority-without-queue",
        lambda on: on.launch(priority_class="high"),
        InvalidRequestError,
        "priority_class: is set without a queue",
    ),
    Case("account-illegal", lambda on: on.launch(service_account="Job"), InvalidJobError, "'Job'"),
    Case(
        "account-too-long",
        lambda on: on.launch(service_account="s" * 254),
        InvalidJobError,
        "spec.serviceAccountName",
    ),
    Case("hosts-too-many", lambda on: on.launch(replicas=10_000), OpenFilesError, "10000 hosts", LOCAL),
]
ENVIRONMENTS: Final = [
    Case("variable-illegal", lambda on: on.within(env_vars={"MY VAR": "1"}), InvalidJobError, "MY VAR"),
    Case(
        "variable-too-long",
        lambda on: on.within(env_vars={"NOTES": "x" * MANY_BYTES}),
        InvalidJobError,
        "must have at most 131072 characters",
    ),
    Case(
        "secret-too-long",
        lambda on: on.within(env_vars={"API_KEY": "x" * MANY_BYTES}),
        InvalidRequestError,
        "API_KEY",
    ),
    Case(
        "secrets-too-large",
        lambda on: on.within(env_vars={f"TOKEN_{number}": "x" * 120_000 for number in range(10)}),
        InvalidRequestError,
        "1,200,070 bytes",
    ),
    Case("secret-illegal", lambda on: on.within(secrets=["My_Key"]), InvalidRequestError, "'My_Key'"),
    Case(
        "package-with-password",
        lambda on: on.within(pip_packages=["git+https://me:hunter2@host/x"]),
        InvalidRequestError,
        "pip_packages[0]: holds a password",
    ),
    Case(
        "package-not-here",
        lambda on: on.within(pip_packages=["no-such-package"]),
        UnsupportedFeatureError,
        "no-such-package",
        ("local", "threads"),
    ),
    Case("cache-illegal", lambda on: on.within(cache_volume="My_Claim"), InvalidJobError, "'My_Claim'"),
    Case(
        "workspace-missing",
        lambda on: on.within(workspace=on.folder / "nowhere"),
        InvalidRequestError,
        "nowhere",
    ),
    Case(
        "workspace-no-directory",
        lambda on: on.within(workspace=on.write("", "train.py")),
        InvalidRequestError,
        "train.py",
    ),
    Case(
        "argument-too-long",
        lambda on: on.run("echo", "x" * MANY_BYTES),
        InvalidJobError,
        "spec.entrypoint.command[1]",
    ),
    Case(
        "arguments-too-many",
        lambda on: on.run("echo", *["x"] * 2000),
        InvalidJobError,
        "spec.entrypoint.command",
    ),
]


def ask_about(on: Scene, *, do: Callable[[Scene, Any], object], job: Any) -> object:
    return do(on, job)


def command_about(on: Scene, *, command: str, job: str) -> object:
    return on.fray(command, job)


ACTS: Final[dict[str, Callable[[Scene, Any], object]]] = {
    "poll": lambda on, job: on.cluster.poll(job),
    "terminate": lambda on, job: on.cluster.terminate(job),
    "logs": lambda on, job: list(on.cluster.logs(job)),
    "follow": lambda on, job: list(on.cluster.logs(job, follow=True)),
    "outcome": lambda on, job: on.cluster.outcome(job),
    "outcomes": lambda on, job: on.cluster.outcomes(job),
    "wait": lambda on, job: on.cluster.wait(job),
    "wait-for-both": lambda on, job: on.cluster.wait([on.ended, job]),
    "monitor": lambda on, job: on.cluster.monitor(job),
    "attach": lambda on, job: Client(on.cluster).attach(job),
    "wait-all": lambda on, job: wait_all([JobHandle(on.cluster, job)]),
}
NO_IDS: Final[dict[str, tuple[Any, type[FrayError], str]]] = {
    "nobody": ("nobody", JobNotFoundError, "no job 'nobody'"),
    "path": ("../../pods/x", JobNotFoundError, "no job '../../pods/x'"),
    "empty": ("", JobNotFoundError, "no job ''"),
    "long": ("x" * 300, JobNotFoundError, f"no job '{'x' * 300}'"),
    "surrogate": ("a\ud800", JobNotFoundError, r"no job 'a\ud800'"),
    "none": (None, InvalidRequestError, "job_id: is None"),
    "bytes": (b"train", InvalidRequestError, "job_id: is b'train'"),
}
JOBS: Final = [
    Case(f"{act}-{what}", partial(ask_about, do=do, job=job), error, told)
    for act, do in ACTS.items()
    for what, (job, error, told) in NO_IDS.items()
]
CHOICES: Final = [
    Case("rank-5", lambda on: on.cluster.logs(on.ended, rank=5), LogsNotFoundError, "rank 5"),
    Case("rank-below-0", lambda on: on.cluster.logs(on.ended, rank=-1), LogsNotFoundError, "rank -1"),
    Case("rank-text", lambda on: on.cluster.logs(on.ended, rank="0"), InvalidRequestError, "rank: is '0'"),
    Case("attempt-99", lambda on: on.cluster.logs(on.ended, attempt=99), LogsNotFoundError, "attempt 99"),
    Case("attempt-0", lambda on: on.cluster.logs(on.ended, attempt=0), LogsNotFoundError, "attempt 0"),
    Case("attempt-text", lambda on: on.cluster.logs(on.ended, attempt="1"), InvalidRequestError, "is '1'"),
    Case("timeout-below-0", lambda on: on.cluster.wait(on.ended, timeout=-1), InvalidRequestError, "is -1"),
    Case(
        "timeout-nan",
        lambda on: on.cluster.wait(on.ended, timeout=float("nan")),
        InvalidRequestError,
        "timeout: is nan",
    ),
    Case("timeout-text", lambda on: on.cluster.wait(on.ended, timeout="1h"), InvalidRequestError, "is '1h'"),
    Case(
        "handle-timeout-below-0",
        lambda on: JobHandle(on.cluster, on.ended).wait(-1),
        InvalidRequestError,
        "timeout: is -1",
    ),
    Case("wait-for-number", lambda on: on.cluster.wait(7), InvalidRequestError, "job_id: is 7"),
    Case("lines-below-0", lambda on: JobHandle(on.cluster, on.ended).logs(-1), InvalidRequestError, "is -1"),
    Case("lines-text", lambda on: JobHandle(on.cluster, on.ended).logs("5"), InvalidRequestError, "is '5'"),
    Case("wait-all-ids", lambda on: wait_all([on.ended]), InvalidRequestError, "no handle"),
    Case(
        "wait-all-one", lambda on: wait_all(JobHandle(on.cluster, on.ended)), InvalidRequestError, "no list"
    ),
]
SPECS: Final = [
    Case("spec-number", lambda on: create_cluster(7), ClusterSpecError, "of type int"),
    Case("spec-ray", lambda on: create_cluster("ray?namespace=x"), ClusterUnavailableError, "'ray'"),
    Case("spec-iris", lambda on: create_cluster("iris"), ClusterUnavailableError, "'iris'"),
    Case("client-of-spec", lambda on: Client("local"), InvalidRequestError, "cluster: is 'local'"),
    Case("current-spec", lambda on: set_current_cluster("local"), InvalidRequestError, "cluster: is 'local'"),
    Case("cli-spec-unknown", lambda on: on.fray("list", "--cluster", "slurm"), ClusterSpecError, "'slurm'"),
    Case(
        "cli-spec-ray",
        lambda on: on.fray("list", "--cluster", "ray?cluster=us"),
        ClusterUnavailableError,
        "'ray'",
    ),
]
COMMANDS: Final = [
    Case("cli-no-module", lambda on: on.fray("run", "no_such:main"), InvalidRequestError, "'no_such'"),
    Case("cli-no-function", lambda on: on.fray("run", "json:main"), InvalidRequestError, "no 'main'"),
    Case("cli-no-callable", lambda on: on.fray("run", "json:__name__"), InvalidRequestError, "json:__name__"),
    Case("cli-nothing", lambda on: on.fray("run"), InvalidRequestError, "names nothing to run"),
    Case(
        "cli-no-tpu",
        lambda on: on.fray("run", "--tpu", "v5p-17", "--", "true"),
        UnknownAcceleratorError,
        "'v5p-17'",
    ),
    Case(
        "cli-no-variable",
        lambda on: on.fray("run", "--env", "=1", "--", "true"),
        InvalidRequestError,
        "--env: names ''",
    ),
    Case(
        "cli-file-and-program",
        lambda on: on.fray("run", "-f", on.write_job(), "--", "true"),
        InvalidRequestError,
        "a file and also 'true'",
    ),
    Case("file-missing", lambda on: on.fray("run", "-f", "no.yaml"), JobFileError, "no.yaml"),
    Case("file-no-yaml", lambda on: on.fray("run", "-f", on.write("a: [")), JobFileError, "no valid YAML"),
    Case("file-a-list", lambda on: on.fray("run", "-f", on.write("[1]")), JobFileError, "is a list"),
    Case("file-empty", lambda on: on.fray("run", "-f", on.write("")), JobFileError, "it is empty"),
    Case("file-of-pod", lambda on: on.fray("run", "-f", on.write_job(kind="Pod")), JobFileError, "Pod/bad"),
    Case("file-two-jobs", lambda on: on.fray("run", "-f", on.write_job(count=2)), JobFileError, "2 FrayJobs"),
    Case(
        "file-unknown-field",
        lambda on: on.fray("run", "-f", on.write_job(replicaz=2)),
        InvalidJobError,
        "spec.replicaz",
    ),
    Case(
        "file-bad-value",
        lambda on: on.fray("run", "-f", on.write_job(replicas=0)),
        InvalidJobError,
        "spec.replicas",
    ),
    Case(
        "file-bad-name",
        lambda on: on.fray("run", "-f", on.write_job(name="Bad_Name")),
        InvalidJobError,
        "'Bad_Name'",
    ),
    *(
        Case(
            f"cli-{command}-{what}", partial(command_about, command=command, job=job), JobNotFoundError, told
        )
        for command in ("status", "logs", "stop", "wait")
        for what, job, told in [("nobody", "nobody", "no job 'nobody'"), ("path", "../x", "no job '../x'")]
    ),
]
CASES: Final[tuple[Case, ...]] = (
    *REQUESTS,
    *CALLS,
    *RESOURCES,
    *ENVIRONMENTS,
    *JOBS,
    *CHOICES,
    *SPECS,
    *COMMANDS,
)
