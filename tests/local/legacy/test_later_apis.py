"""Snippets of the later APIs (contexts by kind, `fray.cluster`) run as they were published.

What a snippet leaves undefined stands before it; what tells whether it worked stands behind it. Lines that
need Ray are left out. Names of packages are stand-ins: wheels that are made here.
"""

from __future__ import annotations

import pytest

from tests.local.legacy.programs import Place, build_wheel


def test_contexts_by_kind(place: Place) -> None:
    program = """
from fray import create_context

# Create a synchronous context
ctx = create_context("sync")

# Create a thread pool context
ctx = create_context("threadpool", max_workers=4)

# Use the context
ref = ctx.put({"data": [1, 2, 3]})
future = ctx.run(lambda x: sum(x["data"]), ref)
result = ctx.get(future)  # Returns 6

print(result)
"""
    assert place.run(program) == "6\n"


def test_a_class_that_looks_like_a_context(place: Place) -> None:
    program = """
from typing import Any, Callable, Protocol

class ExecutionContext(Protocol):
    def put(self, obj: Any) -> Any:
        \"\"\"Store an object and return a reference.\"\"\"
        ...

    def get(self, ref: Any) -> Any:
        \"\"\"Retrieve an object from its reference.\"\"\"
        ...

    def run(self, fn: Callable, *args) -> Any:
        \"\"\"Execute a function with arguments and return a future.\"\"\"
        ...

    def wait(self, futures: list, num_returns: int = 1) -> tuple[list, list]:
        \"\"\"Wait for futures to complete.\"\"\"
        ...

import fray
for kind in (fray.SyncContext, fray.ThreadContext, fray.ExecutionContext, fray.RayContext):
    print(kind.__name__)
def double(ctx: ExecutionContext, number: int) -> int:
    ready, rest = ctx.wait([ctx.run(lambda x: 2 * x, ctx.put(number))])
    return ctx.get(ready[0])
print(double(fray.ThreadContext(2), 21))
"""
    assert place.run(program) == "SyncContext\nThreadContext\nJobContext\nRayContext\n42\n"


CLUSTER_API = """
from fray.cluster import (
    LocalCluster,
    RayCluster,
    JobRequest,
    ResourceConfig,
    TpuConfig,
    create_environment,
)

# Launch a job on LocalCluster
cluster = LocalCluster()
request = JobRequest(
    name="my-job",
    entrypoint="my_module.main",
    entrypoint_args=["--config", "path/to/config.yaml"],
    environment=create_environment(),
)
job_id = cluster.launch(request)

# Monitor job logs
for line in cluster.monitor(job_id):
    print(line)

# Check job status
info = cluster.poll(job_id)
print(f"Status: {info.status}")
"""


def test_a_module_on_a_cluster(place: Place) -> None:
    place.write("my_module/__init__.py", "")
    place.write("my_module/main.py", "import sys; print(__name__, sys.argv[1:])")
    printed = "[0/0 1] __main__ ['--config', 'path/to/config.yaml']\nStatus: succeeded\n"
    assert place.run(CLUSTER_API) == printed


def test_a_tpu_job_on_a_cluster(place: Place) -> None:
    place.write("train.py", "import os; print(os.environ['TPU_WORKER_ID'], os.environ['WANDB_API_KEY'])")
    program = """
from fray.cluster import JobRequest, LocalCluster, ResourceConfig, TpuConfig, create_environment
cluster = LocalCluster()

tpu_request = JobRequest(
    name="tpu-training",
    entrypoint="train",
    resources=ResourceConfig(
        cpu=96,
        ram="512g",
        device=TpuConfig(type="v5e-16", count=8),
    ),
    environment=create_environment(
        extra_dependency_groups=["tpu"],
        env_vars={"WANDB_API_KEY": "your-key"},
    ),
)
job_id = cluster.launch(tpu_request)

cluster.wait(job_id, raise_on_failure=True)
print(sorted(str(line) for line in cluster.logs(job_id)))
"""
    printed = [f"[0/{host} 1] {host} your-key" for host in range(4)]
    assert place.run(program) == f"{printed}\n"


def test_an_outer_loop(place: Place) -> None:
    program = """
from fray.cluster import Entrypoint, JobRequest, ResourceConfig, current_cluster
train_resources = rollout_resources = ResourceConfig()
entrypoint = Entrypoint.from_callable(print, args=["ran"])

cluster = current_cluster()
jobs = [
cluster.launch(JobRequest(name="train", resources=train_resources, entrypoint=entrypoint)),
cluster.launch(JobRequest(name="rollout-N", resources=rollout_resources, entrypoint=entrypoint)),
]
cluster.wait(jobs, raise_on_failure=True)

print(sorted((info.name, info.status.value) for info in cluster.list_jobs()))
cluster.terminate(jobs[0])
print(cluster.monitor(jobs[0]).status, cluster.poll(jobs[0]).status)
"""
    infos = "[('rollout-N', 'succeeded'), ('train', 'succeeded')]"
    assert place.run(program) == f"{infos}\nsucceeded succeeded\n"


def test_a_training_launcher(place: Place) -> None:
    place.write("train_lm.py", "import os\ndef main(config): print(config.lr, os.environ['WANDB_MODE'])\n")
    program = """
from types import SimpleNamespace
from fray.cluster import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig, current_cluster
import train_lm
config = SimpleNamespace(resources=ResourceConfig(), lr=0.1)
env = {"WANDB_MODE": "offline"}

cluster = current_cluster()
job_id = cluster.launch(JobRequest(
    name="train_lm",
    entrypoint=Entrypoint.from_callable(train_lm.main, args=[config]),
    resources=config.resources,
    environment=EnvironmentConfig.create(env_vars=env),
))
cluster.wait(job_id, raise_on_failure=True)

print(*cluster.logs(job_id), cluster.poll(job_id).name)
"""
    assert place.run(program) == "[0/0 1] 0.1 offline train_lm\n"


def test_a_named_actor(place: Place) -> None:
    program = """
from fray.job import get_default_job_ctx

class Curriculum:
    def __init__(self):
        self.stats = []
    def sample_lesson(self):
        return "lesson"
    def update_lesson_stats(self, stats):
        self.stats.append(stats)
        return len(self.stats)

for number in range(2):
    ctx = get_default_job_ctx()
    curriculum = get_default_job_ctx().create_actor(Curriculum, name="curriculum",
    get_if_exists=True, preemptible=False, num_cpus=0)
    future = curriculum.sample_lesson.remote()
    print(ctx.get(future), ctx.get(curriculum.update_lesson_stats.remote({})))
"""
    assert place.run(program) == "lesson 1\nlesson 2\n"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("local", "local"),
        ("ray?namespace=ml", "ClusterUnavailableError"),
        ("iris?controller=http://host:10000", "ClusterUnavailableError"),
        ("nonsense", "ClusterSpecError"),
    ],
)
def test_specs(place: Place, spec: str, told: str) -> None:
    program = """
from fray import FrayError
from fray.cluster import current_cluster
try:
    print(current_cluster().spec)
except FrayError as error:
    assert error.next_step
    print(type(error).__name__)
"""
    assert place.run(program, {"FRAY_CLUSTER_SPEC": spec}) == f"{told}\n"


def test_a_task_of_the_migration_guide(place: Place) -> None:
    program = """
from fray import fray_job_ctx
arg1, arg2 = 4, 6

def remote_function(a, b):
    return a + b

ctx = fray_job_ctx()
future = ctx.run(remote_function, arg1, arg2)
assert ctx.get(future) == 10
"""
    assert place.run(program) == ""


def test_a_job_with_packages_of_the_migration_guide(place: Place) -> None:
    for package in ("package_x", "package_y"):
        build_wheel(place.folder / "wheels", package)
    program = """
from fray import Entrypoint, ResourceConfig, create_environment, current_cluster

from fray import JobRequest

# foo just uses packages as needed
def foo():
    import package_x
    import package_y
    print(package_x.WHAT, package_y.WHAT)

def foo_caller():
    request = JobRequest(
        name="foo",
        entrypoint=Entrypoint(callable=foo),
        resources=ResourceConfig(replicas=1),
        environment=create_environment(pip_packages=["package_x", "package_y"]),
    )
    ctx = current_cluster()
    job_id = ctx.launch(request)
    ctx.wait(job_id)
    print(ctx.poll(job_id).status, *ctx.logs(job_id))

foo_caller()
"""
    variables = {"FRAY_CLUSTER_SPEC": "local?use_isolated_env=true"}
    assert place.run(program, variables) == "succeeded [0/0 1] package_x package_y\n"


def test_an_inference_pool_of_the_migration_guide(place: Place) -> None:
    """As it was published, but for an indentation and a variable of another name, which were slips."""
    program = """
import warnings
from fray import Entrypoint, JobRequest, ResourceConfig, TpuConfig, create_environment, current_cluster
warnings.simplefilter("ignore")

def vllm_server_worker(model, request_queue, response_queue):
    print(model, request_queue, response_queue)

class Config:
    model_config = "model"

class Pool:
    config, request_queue, response_queue = Config(), "requests", "responses"

    def start(self):
        resource_config = ResourceConfig(
            cpu=1,
            ram="16",
            disk="10g",
            device=TpuConfig(type="v5litepod-4"),
            replicas=1,
            regions=["eu-west4"],
        )

        job_request = JobRequest(
            name="vllm-inference-pool",
            entrypoint=Entrypoint(
                callable=vllm_server_worker,
                function_args={
                    "model": self.config.model_config,
                    "request_queue": self.request_queue,
                    "response_queue": self.response_queue,
                },
            ),
            resources=resource_config,
            environment=create_environment(),
        )

        ctx = current_cluster()
        job_id = ctx.launch(job_request)
        ctx.wait(job_id)
        print(ctx.poll(job_id).status, *ctx.logs(job_id))

Pool().start()
"""
    assert place.run(program) == "succeeded [0/0 1] model requests responses\n"


def test_a_taken_name_comes_with_the_handle_of_its_job(place: Place) -> None:
    program = """
from fray.client import JobAlreadyExists, JobFailed
from fray.local_backend import LocalClient
from fray.types import Entrypoint, JobRequest

client = LocalClient(max_threads=4)
request = JobRequest(name="sleep", entrypoint=Entrypoint.from_command(["sleep", "600"]))
first = client.submit(request)
try:
    client.submit(request, adopt_existing=False)
except JobAlreadyExists as taken:
    print(taken.handle == first, taken.job_name)
    taken.handle.terminate()
try:
    first.wait()
except JobFailed as ended:
    print(ended.job_id, ended.failed_status)
"""
    assert place.run(program) == "True sleep\nsleep stopped\n"
