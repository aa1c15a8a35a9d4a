"""What options of tasks and actors are called on Ray. Pure: nothing here asks a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fray.errors import UnschedulableError
from fray.job.calls import NON_PREEMPTIBLE
from fray.job.checks import check_env
from fray.job.engine_pods import holds
from fray.job.options import ActorOptions, Lifetime, TaskOptions
from fray.runtime.pool.machine.resources import UNBOUNDED, describe_shape

__all__ = ["actor_arguments", "check_fits", "name_resources", "resource_arguments", "task_arguments"]

HEAD_NODE = "node:__internal_head__"
"""What every Ray has once, on its head node."""


def name_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources by Ray's names, without those of which nothing is asked."""
    named = {HEAD_NODE if name in NON_PREEMPTIBLE else name: amount for name, amount in resources.items()}
    return {name: float(amount) for name, amount in named.items() if amount}


def resource_arguments(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return resources, by Ray's names, as arguments of `options`."""
    others = {name: amount for name, amount in resources.items() if name not in {"CPU", "GPU", "memory"}}
    arguments: dict[str, Any] = {"num_cpus": resources.get("CPU", 0)}
    if "GPU" in resources:
        arguments["num_gpus"] = resources["GPU"]
    if "memory" in resources:
        arguments["memory"] = resources["memory"]
    if others:
        arguments["resources"] = others
    return arguments


def task_arguments(options: TaskOptions) -> dict[str, Any]:
    """Return the options of a task, but for its resources."""
    arguments: dict[str, Any] = {"max_retries": options.retries}
    environment = _environment(options.runtime_env, options.env)
    if environment:
        arguments["runtime_env"] = environment
    return arguments


def actor_arguments(options: ActorOptions, namespace: str) -> dict[str, Any]:
    """Return the options of an actor, but for its resources."""
    arguments: dict[str, Any] = {
        "max_concurrency": options.max_concurrency or 1,
        "max_restarts": options.max_restarts or 0,
        "max_task_retries": options.max_task_retries,
    }
    environment = _environment(None, options.env)
    if environment:
        arguments["runtime_env"] = environment
    if options.name is not None:
        arguments |= {"name": options.name, "namespace": namespace, "get_if_exists": options.get_if_exists}
    if options.lifetime is Lifetime.DETACHED:
        arguments |= {"lifetime": "detached", "namespace": namespace}
    return arguments


def check_fits(task: str, wanted: Mapping[str, float], nodes: Iterable[Mapping[str, float]]) -> None:
    """Raise `UnschedulableError` unless a node of those that there are could ever hold it."""
    offered = list(nodes)
    if any(holds(node, wanted) for node in offered):
        return
    largest = max(offered, key=lambda node: node.get("CPU", 0.0), default={})
    raise UnschedulableError(task, _text(wanted), _text(largest))


def _text(resources: Mapping[str, float]) -> str:
    shown = {
        name: amount
        for name, amount in resources.items()
        if not name.startswith("node:") and amount < UNBOUNDED
    }
    return describe_shape(tuple(sorted(shown.items())))


def _environment(runtime_env: Any, env: Mapping[str, str] | None) -> dict[str, Any]:
    """Return Ray's runtime environment: its own dict, or an object with `env` and `package_requirements`."""
    if isinstance(runtime_env, Mapping):
        environment = dict(runtime_env)
    else:
        packages = list(getattr(runtime_env, "package_requirements", None) or ())
        environment = {"pip": packages} if packages else {}
        environment["env_vars"] = dict(getattr(runtime_env, "env", None) or {})
    variables = {**(environment.pop("env_vars", None) or {}), **(env or {})}
    check_env(variables)
    return environment | ({"env_vars": variables} if variables else {})
