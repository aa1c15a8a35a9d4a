"""Environments for packages, by the first API's name for making them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fray.legacy.runtime_env import RuntimeEnv

__all__ = ["build_runtime_env_for_packages"]


def build_runtime_env_for_packages(
    extra: Sequence[str] | None = None,
    pip_packages: Sequence[str] | None = None,
    env_vars: Mapping[str, str] | None = None,
) -> RuntimeEnv:
    """Return an environment with extras, packages and variables, for `ClusterContext.create_job`.

    Raises:
        InvalidRequestError: A part means nothing.
    """
    return RuntimeEnv(package_requirements=pip_packages or (), env=env_vars or {}, extras=extra or ())
