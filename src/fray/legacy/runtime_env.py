"""What the first API called the environment of a job, and the environment that it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fray.errors import InvalidRequestError, InvalidTypeError, UnsupportedFeatureError
from fray.types.checks import check_texts, show_value
from fray.types.environment import EnvironmentConfig, create_environment
from fray.types.resources import ResourceConfig

__all__ = ["Resource", "RuntimeEnv"]

_NUMBERS: Final = "Give a number from 0, such as Resource('CPU', 4)."


@dataclass(frozen=True)
class Resource:
    """So much of something: cores of "CPU", bytes of "memory".

    Raises:
        InvalidRequestError: The quantity is none.
    """

    name: str
    quantity: float

    def __post_init__(self) -> None:
        given: Any = self.quantity
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not given >= 0:
            problem = f"is {given!r}; it cannot be negative" if is_number else "is no number"
            raise InvalidRequestError(f"Resource({self.name!r}).quantity", problem, _NUMBERS)


@dataclass(frozen=True)
class RuntimeEnv:
    """What a job of `ClusterContext` finds, and the least that it needs of a host.

    Args:
        package_requirements: Packages to install, as pip takes them.
        minimum_resources: What each host must have.
        maximum_resources: Checked against the minimum, and not used: nothing limits a host to what it asks.
        env: Variables.
        container_image: Image that it runs in.
        extras: Extras of the project in the current directory.

    Raises:
        InvalidTypeError: A package, or the name or value of a variable, is no text. It is a TypeError.
        InvalidRequestError: A part means nothing.
    """

    package_requirements: Sequence[str] = ()
    minimum_resources: Sequence[Resource] = ()
    maximum_resources: Sequence[Resource] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    container_image: str | None = None
    extras: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_packages(self.package_requirements)
        _check_variables(self.env)
        minimum, maximum = (
            _amounts(f"RuntimeEnv.{name}", getattr(self, name))
            for name in ("minimum_resources", "maximum_resources")
        )
        for name in minimum.keys() & maximum.keys():
            if minimum[name] > maximum[name]:
                problem = f"{name}: {minimum[name]} exceeds maximum_resources, {maximum[name]}"
                remedy = "Ask for less, or raise the maximum, which isn't used otherwise."
                raise InvalidRequestError("RuntimeEnv.minimum_resources", problem, remedy)
        self.to_environment()

    def to_environment(self) -> EnvironmentConfig:
        """Return the environment that this means, with the defaults of the calling process."""
        return create_environment(
            docker_image=self.container_image,
            pip_packages=self.package_requirements,
            env_vars=self.env,
            extras=self.extras,
        )

    def to_resources(self) -> ResourceConfig:
        """Return the hosts that this means.

        Raises:
            UnsupportedFeatureError: It asks for more than cores and memory.
        """
        amounts = _amounts("RuntimeEnv.minimum_resources", self.minimum_resources)
        parts: dict[str, Any] = {}
        for name, quantity in amounts.items():
            if name not in ("CPU", "memory"):
                feature = f"RuntimeEnv.minimum_resources {name!r}"
                reason = "accelerators are chosen by their type, and other names mean nothing to a cluster"
                alternative = "Launch a JobRequest with ResourceConfig.with_tpu('v5p-8') or with_gpu('H100')."
                raise UnsupportedFeatureError(feature, reason, alternative)
            if quantity > 0:
                parts |= {"cpu": quantity} if name == "CPU" else {"ram": int(quantity)}
        return ResourceConfig(**parts)


def _check_packages(packages: Any) -> None:
    field, remedy = "RuntimeEnv.package_requirements", "Write ['numpy']."
    for index, package in enumerate(packages if isinstance(packages, list | tuple) else ()):
        if not isinstance(package, str):
            problem = f"is of type {type(package).__name__}; package requirements must be strings"
            raise InvalidTypeError(f"{field}[{index}]", problem, remedy)
        if not package.strip():
            problem = "is empty; package requirements cannot contain empty strings"
            raise InvalidRequestError(f"{field}[{index}]", problem, remedy)
    check_texts(field, packages, remedy=remedy)


def _check_variables(variables: Any) -> None:
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        if not isinstance(name, str):
            problem = f"has the name {show_value(name)}; env keys must be strings"
            raise InvalidTypeError("RuntimeEnv.env", problem, "Write names as text: {'LEVEL': '1'}.")
        if not isinstance(value, str):
            # The value isn't shown: it may be secret.
            problem = f"is of type {type(value).__name__}, not text; env values must be strings"
            raise InvalidTypeError(f"RuntimeEnv.env[{name!r}]", problem, "Write it as text: '1'.")


def _amounts(field: str, resources: Any) -> dict[str, float]:
    if isinstance(resources, str | bytes | Mapping) or not isinstance(resources, Sequence):
        raise InvalidRequestError(field, f"is of type {type(resources).__name__}", "Give a list of Resource.")
    for resource in resources:
        if not isinstance(resource, Resource):
            remedy = "Give a list of Resource, such as [Resource('CPU', 4)]."
            raise InvalidRequestError(field, f"holds a {type(resource).__name__}", remedy)
    return {resource.name: resource.quantity for resource in resources}
