"""What options of tasks and actors mean to a pool: its shapes and profiles. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fray.errors import InvalidOptionError
from fray.job.checks import check_env
from fray.job.options import ActorOptions, TaskOptions
from fray.runtime.pool.messages.specs import DEFAULT_SHAPE, PLAIN, Profile, Shape
from fray.runtime.pool.objects.values import encode

__all__ = ["actor_profile", "actor_shape", "retried_exceptions", "task_profile", "task_shape"]

_NOT_OF_A_TASK: Final = ("package_requirements", "container_image", "extras", "minimum_resources")
"""Parts of `fray.legacy.runtime_env.RuntimeEnv` that belong to a job."""


def task_shape(options: TaskOptions) -> Shape:
    """Return what a task holds while it runs: one CPU unless it says otherwise."""
    return DEFAULT_SHAPE if options.resources is None else _shape({"CPU": 1.0, **options.resources})


def actor_shape(options: ActorOptions) -> Shape:
    """Return what an actor holds while it lives: no CPU unless it says otherwise."""
    return _shape(options.resources or {})


def task_profile(options: TaskOptions) -> Profile:
    """Return what the worker's process of a task must be. Raises `InvalidOptionError`."""
    if options.runtime_env is None and not options.env and not options.max_calls:
        return PLAIN
    env = {**_environment(options.runtime_env), **(options.env or {})}
    check_env(env)
    return Profile(env=tuple(sorted(env.items())), max_calls=options.max_calls or 0)


def actor_profile(options: ActorOptions) -> Profile:
    """Return what the process of an actor must be."""
    return Profile(env=tuple(sorted((options.env or {}).items())))


def retried_exceptions(options: TaskOptions) -> tuple[bytes, int]:
    """Return the encoded tuple of exceptions after which a task is run again (empty: any), and how often.

    Raises `SerializationError`.
    """
    if not options.retry_exceptions:
        return b"", 0
    if options.retry_exceptions is True:
        return b"", options.retries
    return encode(options.retry_exceptions, what="retry_exceptions").to_bytes(), options.retries


def _environment(runtime_env: Any) -> Mapping[str, str]:
    """Return the variables of a runtime environment: an object with `env`, or Ray's dict of `env_vars`.

    Raises `InvalidOptionError` for what else it asks for, since workers have what the driver has, and for
    what is neither.
    """
    if runtime_env is None:
        return {}
    if isinstance(runtime_env, Mapping):
        what, asked, variables = "a dict", runtime_env, "env_vars"
    elif hasattr(runtime_env, "env"):
        what, variables = f"a {type(runtime_env).__name__}", "env"
        asked = {name: getattr(runtime_env, name, None) for name in (variables, *_NOT_OF_A_TASK)}
    else:
        raise InvalidOptionError("runtime_env", repr(runtime_env), "a RuntimeEnv, or a dict with env_vars")
    unknown = sorted(str(key) for key, value in asked.items() if key != variables and value)
    if unknown:
        legal = f"{variables} alone; packages and files are those of the job's environment"
        raise InvalidOptionError("runtime_env", f"{what} with {', '.join(unknown)}", legal)
    named: Mapping[str, str] = asked.get(variables) or {}
    if not isinstance(named, Mapping):
        raise InvalidOptionError("runtime_env", f"{what} with {variables}={named!r}", "a dict of variables")
    return named


def _shape(resources: Mapping[str, float]) -> Shape:
    return tuple(sorted((name, float(amount)) for name, amount in resources.items() if amount))
