"""Snippets of the first API (contexts, RuntimeEnv, ClusterContext) run as they were published.

What a snippet leaves undefined stands before it; what tells whether it worked stands behind it. Names of
packages are stand-ins: wheels that are made here.
"""

from __future__ import annotations

import pytest

from tests.local.legacy.programs import Place, build_wheel


def test_a_task(place: Place) -> None:
    program = """
from fray import get_job_context

# Auto-initializes with local backend for testing
ctx = get_job_context()

def my_task(x):
    return x * 2

ref = ctx.create_task(my_task, 5)
result = ctx.get(ref)  # Returns 10

print(result)
"""
    assert place.run(program) == "10\n"


def test_actors(place: Place) -> None:
    program = """
class StatusActor:
    def status(self):
        return "ok"

from fray import get_job_context, ActorOptions, Lifetime

ctx = get_job_context()

class Counter:
    def __init__(self, start=0):
        self.count = start

    def increment(self):
        self.count += 1
        return self.count

# Simple actor
actor = ctx.create_actor(Counter, kwargs={"start": 5})
ref = actor.increment()
value = ctx.get(ref)  # Returns 6

# Actor with options (detached lifetime, specific resources)
options = ActorOptions(
    name="status_actor",
    get_if_exists=True,  # Reuse if exists
    lifetime=Lifetime.DETACHED,  # Survives beyond job
    resources={"CPU": 0, "head_node": 0.0001}  # Schedule on head node
)
status_actor = ctx.create_actor(StatusActor, options=options)

print(value, ctx.get(status_actor.status()), ctx.create_actor(StatusActor, options=options) == status_actor)
"""
    assert place.run(program) == "6 ok True\n"


CLUSTER = """
from fray import LocalClusterContext
from fray.types import RuntimeEnv

cluster = LocalClusterContext()

def my_job(ctx):
    refs = [ctx.create_task(lambda x: x**2, i) for i in range(10)]
    results = ctx.get(refs)
    print(f"Results: {results}")

job_id = cluster.create_job(
    my_job,
    RuntimeEnv(package_requirements=["numpy"])
)

# List all jobs
jobs = cluster.list_jobs()

print([(job.id, job["id"]) for job in jobs] == [(job_id, job_id)])
cluster.cluster.wait(job_id, raise_on_failure=True)
print(*cluster.cluster.logs(job_id))
print(cluster.list_jobs()[0].status)
"""


def test_a_job_of_a_cluster_context(place: Place) -> None:
    assert place.run(CLUSTER) == "True\n[0/0 1] Results: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\nSUCCEEDED\n"


def test_a_package_that_is_missing_is_installed_for_its_job(place: Place) -> None:
    build_wheel(place.folder / "wheels", "stand_in")
    program = CLUSTER.replace('"numpy"', '"stand_in"').replace(
        "    refs =", "    import stand_in\n    print(stand_in.WHAT)\n    refs ="
    )
    printed = place.run(program)
    assert printed.startswith("True\n[0/0 1] stand_in [0/0 1] Results: [0, 1, 4,")
    assert printed.endswith("SUCCEEDED\n")


def test_resources(place: Place) -> None:
    program = """
from fray import get_job_context

class MyActor:
    def name(self):
        return "mine"

def my_task(args):
    return sum(args)

args = (1, 2)
ctx = get_job_context()

from fray import ActorOptions, TaskOptions

# Schedule actor on head node (non-preemptible in Marin clusters)
actor_options = ActorOptions(
    resources={"CPU": 0, "head_node": 0.0001}  # Claims head_node resource
)
actor = ctx.create_actor(MyActor, options=actor_options)

# Task with specific resources
task_options = TaskOptions(
    resources={"CPU": 4, "GPU": 1, "memory": 8 * 1024**3}
)
ref = ctx.create_task(my_task, args, options=task_options)

print(ctx.get(actor.name()), ctx.get(ref))
"""
    assert place.run(program) == "mine 3\n"


WAIT = """
info = cluster.cluster.wait(job_id, raise_on_failure=True)
print(*cluster.cluster.logs(job_id))
jobs = cluster.list_jobs()
job = next(j for j in jobs if j["id"] == job_id)
assert "SUCCEEDED" in job["status"], job
assert job["submission_time"] <= job["end_time"] + 1
"""
TRAIN = """
import os, sys, torch, jax_stand_in
print(sys.argv[1:], torch.WHAT, jax_stand_in.WHAT, os.environ.get("WANDB_API_KEY"))
"""


def test_a_script_with_packages(place: Place) -> None:
    for package in ("torch", "jax_stand_in"):  # the machine may have a jax of its own
        build_wheel(place.folder / "wheels", package)
    place.write("train.py", TRAIN)
    program = """
from fray import LocalClusterContext, RuntimeEnv
cluster = LocalClusterContext()

job_id = \\
cluster.create_job(
    entrypoint="python train.py --config config.yaml",
    env=RuntimeEnv(package_requirements=["torch", "jax_stand_in"])
)
"""
    printed = place.run(program + WAIT)
    assert printed == "[0/0 1] ['--config', 'config.yaml'] torch jax_stand_in None\n"


def test_a_script_with_packages_and_variables(place: Place) -> None:
    for package in ("torch", "wandb"):
        build_wheel(place.folder / "wheels", package)
    place.write("train.py", TRAIN.replace("jax_stand_in", "wandb"))
    program = """
from fray import LocalClusterContext, RuntimeEnv
cluster = LocalClusterContext()

job_id = cluster.create_job(
    entrypoint="python train.py --batch-size 32",
    env=RuntimeEnv(
        package_requirements=["torch", "wandb"],
        env={"WANDB_API_KEY": "xxx"}
    )
)
"""
    assert place.run(program + WAIT) == "[0/0 1] ['--batch-size', '32'] torch wandb xxx\n"


def test_an_image(place: Place) -> None:
    place.write("train.py", "print('trained')")
    program = """
from fray import LocalClusterContext, RuntimeEnv
cluster = LocalClusterContext()

job_id = \\
cluster.create_job(
    entrypoint="python train.py",
    env=RuntimeEnv(container_image="gcr.io/my-project/trainer:v1")
)
"""
    assert place.run(program + WAIT) == "[0/0 1] trained\n"


def test_a_script_in_the_positional_form(place: Place) -> None:
    program = """
from pathlib import Path
from fray import LocalClusterContext, RuntimeEnv
cluster = LocalClusterContext()

# Create a simple test script
script_path = "test_script.py"
Path(script_path).write_text(\"\"\"
import sys
print("Job executed successfully")
sys.exit(0)
\"\"\")

job_id = cluster.create_job(
    entrypoint=f"python {script_path}",
    env=RuntimeEnv()
)
"""
    assert place.run(program + WAIT) == "[0/0 1] Job executed successfully\n"


def test_a_deleted_job_is_stopped_and_still_listed(place: Place) -> None:
    place.write("long_job.py", "import time; print('ready', flush=True); time.sleep(10000)")
    program = """
from fray import LocalClusterContext, RuntimeEnv
cluster = LocalClusterContext()
script_path = "long_job.py"

job_id = cluster.create_job(
    entrypoint=f"python {script_path}",
    env=RuntimeEnv()
)

print(next(cluster.cluster.logs(job_id, follow=True)))  # Let it start

# Delete should stop it
cluster.delete_job(job_id)

# Verify stopped
jobs = cluster.list_jobs()
job = next(j for j in jobs if j["id"] == job_id)
assert "STOP" in job["status"]
"""
    assert place.run(program) == "[0/0 1] ready\n"


@pytest.mark.parametrize("home", ["fray", "fray.backend.in_memory"])
def test_a_script_that_finds_its_context(place: Place, home: str) -> None:
    program = f"""
from {home} import LocalClusterContext
from fray import RuntimeEnv
cluster, env = LocalClusterContext(), RuntimeEnv()

# 1. Put code in script
with open("my_job.py", "w") as f:
    f.write(\"\"\"
from fray import get_job_context

ctx = get_job_context()
ref = ctx.create_task(lambda: 42)
print(ctx.get(ref))
\"\"\")

# 2. Submit script
job_id = \\
cluster.create_job("python my_job.py", env)
"""
    assert place.run(program + WAIT) == "[0/0 1] 42\n"


def test_an_environment_for_packages(place: Place) -> None:
    build_wheel(place.folder / "wheels", "stand_in")
    place.write("pyproject.toml", PROJECT)
    place.write("module_of_project.py", "")
    program = """
from fray.backend.ray.ray_deps import build_runtime_env_for_packages

runtime_env = build_runtime_env_for_packages(
    extra=["tpu"],
    env_vars={"WANDB_PROJECT": "my-project"}
)

from fray import LocalClusterContext
cluster = LocalClusterContext()
job_id = cluster.create_job('echo "$WANDB_PROJECT"', runtime_env)
"""
    assert place.run(program + WAIT) == "[0/0 1] my-project\n"


PROJECT = """
[project]
name = "stand-in-project"
version = "1.0"
[project.optional-dependencies]
tpu = ["stand_in"]
"""
