"""Snippets of the earlier APIs run as their users wrote them, on the imports that they used."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import fray
import fray.context
import fray.job
import fray.job_context


def run_as_script(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    return ran.stdout


def test_the_first_api_needs_no_setup() -> None:
    program = """
from fray import get_job_context

def my_task(x):
    return x * 2

class Counter:
    def __init__(self, start=0):
        self.value = start
    def increment(self):
        self.value += 1
        return self.value

ctx = get_job_context()
ref = ctx.create_task(my_task, 5)
print(ctx.get(ref))
actor = ctx.create_actor(Counter, kwargs={"start": 5})
print(ctx.get(actor.increment()))
refs = [ctx.create_task(lambda x: x**2, i) for i in range(5)]
print(ctx.get(refs))
print(ctx.get(ctx.create_task(lambda: 42)))
"""
    assert run_as_script(program) == "10\n6\n[0, 1, 4, 9, 16]\n42\n"


def test_the_options_of_the_first_api() -> None:
    program = """
from fray import ActorOptions, Lifetime, TaskOptions, get_job_context

class StatusActor:
    def status(self):
        return "ok"

def my_task(args):
    return args

ctx = get_job_context()
options = ActorOptions(
    name="status_actor", get_if_exists=True, lifetime=Lifetime.DETACHED,
    resources={"CPU": 0, "head_node": 0.0001},
)
actor = ctx.create_actor(StatusActor, options=options)
assert ctx.create_actor(StatusActor, options=options) == actor
task_options = TaskOptions(resources={"CPU": 4, "GPU": 1, "memory": 8 * 1024**3})
print(ctx.get(actor.status()), ctx.get(ctx.create_task(my_task, (1, 2), options=task_options)))
"""
    assert run_as_script(program) == "ok (1, 2)\n"


@pytest.mark.parametrize("arguments", ["'sync'", "'threadpool', max_workers=4"])
def test_the_second_api(arguments: str) -> None:
    program = f"""
from fray import create_context

ctx = create_context({arguments})
ref = ctx.put({{"data": [1, 2, 3]}})
future = ctx.run(lambda x: sum(x["data"]), ref)
print(ctx.get(future))
ready, pending = ctx.wait([future], num_returns=1)
print(len(ready), len(pending))
"""
    assert run_as_script(program) == "6\n1 0\n"


def test_the_third_api() -> None:
    program = """
from fray import fray_job_ctx
from fray.job import get_default_job_ctx

def remote_function(a, b):
    return a * b

class Curriculum:
    def __init__(self):
        self.stats = []
    def sample_lesson(self):
        return "lesson"
    def update_lesson_stats(self, stat):
        self.stats.append(stat)
        return len(self.stats)

ctx = fray_job_ctx()
future = ctx.run(remote_function, 5, 2)
assert ctx.get(future) == 10
for _ in range(2):
    ctx = get_default_job_ctx()
    curriculum = ctx.create_actor(
        Curriculum, name="curriculum", get_if_exists=True, preemptible=False, num_cpus=0
    )
    print(ctx.get(curriculum.sample_lesson.remote()), ctx.get(curriculum.update_lesson_stats.remote(1)))
"""
    assert run_as_script(program) == "lesson 1\nlesson 2\n"


@pytest.mark.parametrize("home", [fray, fray.context, fray.job_context])
def test_every_older_name_is_the_same_object(home: Any) -> None:
    names = [name for name in home.__all__ if name in fray.job.__all__]
    assert names
    for name in names:
        assert getattr(home, name) is getattr(fray.job, name)
    assert fray.ExecutionContext is fray.job.JobContext


def test_every_name_of_the_package_is_public() -> None:
    older = {"HostedActor", "create_context", "fray_job_ctx"}
    assert set(fray.job.__all__) - older <= set(fray.__all__)
    assert all(getattr(fray, name) is getattr(fray.job, name) for name in older)
