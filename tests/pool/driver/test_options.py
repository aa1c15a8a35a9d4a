"""What options mean in a pool of processes: variables, numbers of calls, resources, names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fray.errors import InvalidOptionError, SerializationError, StoreDirectoryError, UnschedulableError
from fray.job import ActorOptions, GeneratorFuture, JobContext, TaskOptions, create_job_ctx, get_job_context
from fray.job.pool import start_pool
from fray.legacy.runtime_env import RuntimeEnv
from fray.runtime.container import thread_limits

MakePool = Callable[[int], JobContext]


@dataclass
class Environment:
    """As earlier APIs describe a worker's process."""

    env: dict[str, str] = field(default_factory=dict)


class Sums:
    def __init__(self, start: int = 0) -> None:
        self.total = start

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def pid(self) -> int:
        return os.getpid()

    def numbers(self, count: int) -> Iterator[int]:
        yield from range(self.total, self.total + count)


class Anything:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda: name


def variable(name: str) -> str | None:
    return os.environ.get(name)


def take_from(actor: Any, count: int) -> list[int]:
    ctx = get_job_context()
    numbers = actor.numbers(count)
    assert isinstance(numbers, GeneratorFuture)
    return [ctx.get(item) for item in numbers]


def make_sums(start: int) -> Sums:
    return Sums(start)


@pytest.mark.parametrize(
    "options",
    [
        TaskOptions(env={"OWN_VARIABLE": "set"}),
        TaskOptions(runtime_env=Environment({"OWN_VARIABLE": "set"})),
        TaskOptions(runtime_env={"env_vars": {"OWN_VARIABLE": "set"}}),
        TaskOptions(env={"OWN_VARIABLE": "set"}, runtime_env=Environment({"OWN_VARIABLE": "other"})),
    ],
    ids=["env", "object", "dict", "env wins"],
)
def test_variables_are_those_of_the_tasks_process(make_pool: MakePool, options: TaskOptions) -> None:
    ctx = make_pool(1)
    assert ctx.get(ctx.run(variable, "OWN_VARIABLE", options=options)) == "set"
    assert ctx.get(ctx.run(variable, "OWN_VARIABLE")) is None


def test_what_a_runtime_env_asks_for_and_does_not_get_is_refused(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    asked = {"env_vars": {"OWN_VARIABLE": "set"}, "pip": ["numpy"], "working_dir": "."}
    with pytest.raises(InvalidOptionError, match="a dict with pip, working_dir"):
        ctx.run(variable, "OWN_VARIABLE", options=TaskOptions(runtime_env=asked))
    of_a_job = RuntimeEnv(package_requirements=["numpy"], env={"OWN_VARIABLE": "set"})
    with pytest.raises(InvalidOptionError, match="a RuntimeEnv with package_requirements"):
        ctx.run(variable, "OWN_VARIABLE", options=TaskOptions(runtime_env=of_a_job))
    with pytest.raises(InvalidOptionError, match="env_vars='A=1'"):
        ctx.run(variable, "OWN_VARIABLE", options=TaskOptions(runtime_env={"env_vars": "A=1"}))
    assert ctx.get(ctx.run(variable, "OWN_VARIABLE", options=TaskOptions(runtime_env={"pip": []}))) is None


def test_a_process_ends_after_its_number_of_calls(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    once = TaskOptions(max_calls=1)
    assert len({ctx.get(ctx.run(os.getpid, options=once)) for _ in range(3)}) == 3


def test_resources_by_name_bound_tasks_and_actors() -> None:
    with create_job_ctx("pool", max_workers=1, resources={"licence": 1}, memory=2**26) as ctx:
        licensed = TaskOptions(resources={"licence": 1}, name="licensed")
        assert ctx.get(ctx.run(len, "abc", options=licensed)) == 3
        with pytest.raises(UnschedulableError, match=r"'greedy' asks for .*licence: 2"):
            ctx.get(ctx.run(len, "abc", options=TaskOptions(resources={"licence": 2}, name="greedy")))
        with pytest.raises(UnschedulableError, match="licence"):
            ctx.get(ctx.create_actor(Sums, options=ActorOptions(resources={"licence": 2})).pid())


def test_accelerators_are_slots_that_processes_see_by_variables() -> None:
    names = ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
    gpu = {"gpu": 1.0}
    with create_job_ctx("pool", max_workers=2, resources={"Gpu": 2}) as ctx:
        actor = ctx.create_actor(Sums, options=ActorOptions(resources={"GPU": 1.0}))
        held = ctx.get(actor.variable(names[0]), timeout=60)
        other = ctx.get(ctx.run(variable, names[0], options=TaskOptions(resources=gpu)), timeout=60)
        assert {held, other} == {"0", "1"}
        assert ctx.get([ctx.run(variable, name) for name in names]) == ["", "cpu"]
        own = TaskOptions(resources=gpu, env={names[0]: "GPU-3"})
        assert ctx.get(ctx.run(variable, names[0], options=own), timeout=60) == "GPU-3"
        assert ctx.get(ctx.run(variable, names[1], options=own), timeout=60) is None


def test_numerical_libraries_get_the_cpus_of_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name, _ in thread_limits(1.0, {})]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    two = TaskOptions(resources={"CPU": 2})
    with create_job_ctx("pool", max_workers=2) as ctx:
        assert ctx.get([ctx.run(variable, name) for name in names], timeout=60) == ["1"] * len(names)
        told = ctx.get([ctx.run(variable, name, options=two) for name in names], timeout=60)
        assert told == ["2"] * len(names)
        assert len(set(ctx.get([ctx.run(os.getpid, options=two) for _ in range(3)], timeout=60))) == 1
        own = replace(two, env={names[0]: "5"})
        assert ctx.get(ctx.run(variable, names[0], options=own), timeout=60) == "5"
        actor = ctx.create_actor(Sums, num_cpus=2)
        assert ctx.get(actor.variable(names[0]), timeout=60) == "2"
    monkeypatch.setenv(names[0], "7")
    with create_job_ctx("pool", max_workers=2) as ctx:
        told = ctx.get([ctx.run(variable, name, options=two) for name in names], timeout=60)
        assert told == ["7", *[None] * (len(names) - 1)]


def test_an_actor_with_cpus_or_variables_has_a_process_of_its_own(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    own = ctx.create_actor(Sums, num_cpus=1)
    assert ctx.get(own.pid()) not in ctx.get([ctx.run(os.getpid) for _ in range(10)])
    told = ctx.create_actor(Sums, options=ActorOptions(env={"OWN_VARIABLE": "set"}))
    assert ctx.get(told.variable("OWN_VARIABLE")) == "set"


def test_a_generator_method_streams_from_any_process_that_has_its_handle(make_pool: MakePool) -> None:
    ctx = make_pool(2)
    actor = ctx.create_actor(Sums, 5)
    assert take_from_here(ctx, actor, 3) == [5, 6, 7]
    assert ctx.get(ctx.run(take_from, actor, 100)) == list(range(5, 105))


def take_from_here(ctx: JobContext, actor: Any, count: int) -> list[int]:
    return [ctx.get(item) for item in actor.numbers(count)]


def test_methods_that_the_class_does_not_tell_are_left_to_the_actor(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    assert ctx.get(ctx.create_actor(Anything).whatever()) == "whatever"
    made = ctx.create_actor(make_sums, 7)  # type: ignore[arg-type]
    assert ctx.get(made.pid()) > 0
    with pytest.raises(AttributeError, match="nonsense"):
        ctx.get(made.nonsense())
    with pytest.raises(AttributeError, match="Sums has no method 'nonsense'"):
        _ = ctx.create_actor(Sums).nonsense


def test_what_can_not_be_pickled_is_named(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    with pytest.raises(SerializationError, match="generator"):
        ctx.run(len, [ctx.run(Sums().numbers, 3)])
    with pytest.raises(SerializationError, match=r"args\[0\]"):
        ctx.run(len, (number for number in range(3)))


def test_counts_are_the_drivers(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    with pytest.raises(InvalidOptionError, match="called in a worker"):
        ctx.get(ctx.run(lambda: get_job_context().stats()))


def test_shutdown_in_a_worker_does_nothing(make_pool: MakePool) -> None:
    ctx = make_pool(1)
    ctx.get(ctx.run(lambda: get_job_context().shutdown()))
    assert ctx.get(ctx.run(len, "abc")) == 3


def test_a_pool_without_workers_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="max_workers"):
        start_pool(0)


def test_what_memory_has_no_room_for_goes_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAY_SPILL_DIR", str(tmp_path))
    with start_pool(1, memory=1024**2) as ctx:
        ref = ctx.put(bytes(4 * 1024**2))
        assert max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) >= 4 * 1024**2
        assert ctx.get(ref) == bytes(4 * 1024**2)


def test_a_directory_to_spill_to_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAY_SPILL_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(StoreDirectoryError, match="nowhere"):
        start_pool(1)
