"""What options of tasks and actors are called on Ray, and how failures come back from it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray")

from ray import exceptions as ray_errors

from fray.errors import (
    ActorDiedError,
    InvalidOptionError,
    ObjectLostError,
    SerializationError,
    TaskCancelledError,
    UnschedulableError,
    WorkerDiedError,
)
from fray.job import ActorOptions, TaskOptions, create_job_ctx
from fray.job.ray import start
from fray.job.ray_failures import ConstructorFailedError, TaskFailureError, build_failure
from fray.job.ray_options import (
    actor_arguments,
    check_fits,
    name_resources,
    resource_arguments,
    task_arguments,
)
from fray.types import RuntimeEnv


class NoRayError(ValueError):
    """Ends a start at once, as options do that Ray refuses."""


def test_a_new_ray_gets_gpus_apart_from_other_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def init(**given: Any) -> None:
        told.update(given)
        raise NoRayError

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    with pytest.raises(NoRayError):
        start(1, resources={"gpu": 2, "licence": 1})
    assert (told["num_gpus"], told["resources"]) == (2, {"licence": 1})
    with pytest.raises(NoRayError):
        start(1, resources={"gpu": 2}, num_gpus=1)
    assert (told["num_gpus"], told["resources"]) == (1, None)


def test_resources_have_rays_names() -> None:
    wanted = name_resources({"CPU": 0, "GPU": 2, "TPU": 4, "memory": 1024, "head_node": 0.0001})
    assert resource_arguments(wanted) == {
        "num_cpus": 0,
        "num_gpus": 2.0,
        "memory": 1024.0,
        "resources": {"TPU": 4.0, "node:__internal_head__": 0.0001},
    }


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (TaskOptions(), None),
        (TaskOptions(env={"A": "1"}), {"env_vars": {"A": "1"}}),
        (
            TaskOptions(env={"A": "1"}, runtime_env={"pip": ["x"], "env_vars": {"A": "0", "B": "2"}}),
            {"pip": ["x"], "env_vars": {"A": "1", "B": "2"}},
        ),
        (
            TaskOptions(runtime_env=RuntimeEnv(["numpy"], env={"C": "3"})),
            {"pip": ["numpy"], "env_vars": {"C": "3"}},
        ),
    ],
)
def test_environments_become_runtime_environments(options: TaskOptions, environment: Any) -> None:
    assert task_arguments(options).get("runtime_env") == environment


def test_a_hostile_environment_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="env"):
        task_arguments(TaskOptions(runtime_env={"env_vars": {"A=B": "1"}}))


def test_options_of_actors() -> None:
    plain = actor_arguments(ActorOptions(), "ns")
    assert plain == {"max_concurrency": 1, "max_restarts": 0, "max_task_retries": 0}
    named = actor_arguments(ActorOptions(name="a", get_if_exists=True, lifetime="detached"), "ns")  # type: ignore[arg-type]
    assert named == {
        **plain,
        "name": "a",
        "namespace": "ns",
        "get_if_exists": True,
        "lifetime": "detached",
    }


def test_what_fits_on_no_node_is_told_with_what_there_is() -> None:
    nodes = [{"CPU": 4.0, "node:10.0.0.1": 1.0}, {"CPU": 2.0, "GPU": 1.0}]
    check_fits("f", {"CPU": 2.0, "GPU": 1.0}, nodes)
    with pytest.raises(UnschedulableError, match=r"GPU: 1.*the largest has CPU: 4\)"):
        check_fits("f", {"CPU": 4.0, "GPU": 1.0}, nodes)


def _raised(cause: BaseException) -> ray_errors.RayTaskError:
    return ray_errors.RayTaskError("f", f"the traceback\n{cause}", cause, proctitle="f", pid=1, ip="10.0.0.1")


def test_failures_come_back_with_their_type() -> None:
    error = build_failure(_raised(TaskFailureError.of(KeyError("k"), "f")), "f", "")
    assert (type(error), error.args) == (KeyError, ("k",))
    born_dead = ray_errors.ActorDiedError(_raised(ConstructorFailedError.of(OSError(2, "no file"), "A")))
    error = build_failure(born_dead, "A.method", "A")
    assert (type(error), error.args) == (FileNotFoundError, (2, "no file"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ray_errors.TaskCancelledError(), TaskCancelledError),
        (_raised(ray_errors.TaskCancelledError()), TaskCancelledError),
        (_raised(TypeError("can't pickle a lock")), SerializationError),
        (ray_errors.WorkerCrashedError(), WorkerDiedError),
        (ray_errors.ActorDiedError(), ActorDiedError),
        (ray_errors.ObjectLostError("ab" * 28, None, ""), ObjectLostError),
        (_raised(ModuleNotFoundError("no module")), ModuleNotFoundError),
    ],
)
def test_what_ray_reports_is_an_error_of_fray(error: BaseException, expected: type[BaseException]) -> None:
    assert type(build_failure(error, "f", "")) is expected


def test_a_ray_clients_address_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="address is 'ray://head:10001'"):
        create_job_ctx("ray", address="ray://head:10001")
