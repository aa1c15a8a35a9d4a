"""What a job's processes find around them: code, image, packages and variables.

`create_environment` adds the documented defaults; nothing is installed or uploaded here. Values of
variables are shown nowhere, and `is_confidential` says which of them belong into a Secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fray.credentials import holds_credentials, holds_token, is_secret_name, redacted
from fray.errors import InvalidRequestError
from fray.types.checks import (
    check_image,
    check_text,
    check_texts,
    choose_spelling,
    is_encodable,
    refuse_keywords,
    show_value,
)

__all__ = ["COPIED_VARIABLES", "EnvironmentConfig", "create_environment", "is_confidential"]

DEFAULT_VARIABLES: Final[Mapping[str, str]] = {
    "HF_DATASETS_TRUST_REMOTE_CODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
COPIED_VARIABLES: Final = ("HF_TOKEN", "WANDB_API_KEY")
"""Taken over from the process that creates the environment, where it has them."""


_OF_EARLIER_APIS: Final = {
    "setup_scripts": "Write setup=[...]: shell commands that run before the entrypoint.",
    "sync_packages": "Write extras=[...] for parts of the workspace's own project, or pip_packages=[...].",
}


@dataclass(frozen=True, init=False, repr=False)
class EnvironmentConfig:
    """The surroundings of a job's processes; `create_environment` is the usual way to one.

    Args:
        workspace: Directory with the user's code. Exactly one of this and `docker_image`.
        docker_image: Container image that has the code already.
        pip_packages: Packages to install at start, as pip takes them.
        env_vars: Variables. Those whose names tell of a secret travel in a Secret.
        extras: Extras of the workspace's own project to install. Also spelled `extra_dependency_groups`.
        setup: Shell commands run before the entrypoint; one that fails ends the attempt.
        secrets: Secrets of the cluster whose keys become variables.
        cache_volume: PersistentVolumeClaim that keeps downloaded packages between attempts.

    Raises:
        InvalidRequestError: Not exactly one of workspace and image, or a value that means nothing.
    """

    workspace: str | None
    docker_image: str | None
    pip_packages: list[str]
    env_vars: Mapping[str, str]
    extras: list[str]
    setup: list[str]
    secrets: list[str]
    cache_volume: str | None

    @refuse_keywords("EnvironmentConfig", **_OF_EARLIER_APIS)
    def __init__(  # noqa: PLR0913 - a request has as many parts, all with defaults
        self,
        workspace: str | os.PathLike[str] | None = None,
        docker_image: str | None = None,
        pip_packages: Sequence[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        extras: Sequence[str] | None = None,
        *,
        setup: Sequence[str] | None = None,
        secrets: Sequence[str] | None = None,
        cache_volume: str | None = None,
        extra_dependency_groups: Sequence[str] | None = None,
    ) -> None:
        _check_source(workspace, docker_image)
        spellings = {"extras": extras, "extra_dependency_groups": extra_dependency_groups}
        names = choose_spelling("EnvironmentConfig", spellings)
        values: dict[str, Any] = {
            "workspace": None if workspace is None else os.fspath(workspace),
            "docker_image": docker_image,
            "pip_packages": _texts("pip_packages", pip_packages, "Give a list: ['numpy', 'jax>=0.7']."),
            "env_vars": _variables(env_vars),
            "extras": _texts("extras", names, "Give a list: ['tpu']."),
            "setup": _texts("setup", setup, "Give a list of shell commands: ['make -C ext']."),
            "secrets": _texts("secrets", secrets, "Give a list of names of Secrets: ['wandb']."),
            "cache_volume": cache_volume,
        }
        if cache_volume is not None:
            remedy = "Name a PersistentVolumeClaim, or leave it out."
            check_text("EnvironmentConfig.cache_volume", cache_volume, remedy=remedy)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def create(**parts: Any) -> EnvironmentConfig:
        """Return the same as `create_environment`."""
        return create_environment(**parts)

    @property
    def extra_dependency_groups(self) -> list[str]:
        """The same as `extras`."""
        return self.extras

    def __repr__(self) -> str:
        source = f"docker_image={self.docker_image!r}"
        if self.docker_image is None:
            source = f"workspace={self.workspace!r}"
        packages = [redacted(package) for package in self.pip_packages]
        # Values of variables are left out, all of them: any may be a secret.
        parts = {
            "pip_packages": packages,
            "env_vars": dict.fromkeys(self.env_vars, "***"),
            "extras": list(self.extras),
            "setup": [f"{len(self.setup)} commands"] if self.setup else [],
            "secrets": list(self.secrets),
        }
        shown = "".join(f", {name}={value!r}" for name, value in parts.items() if value)
        return f"EnvironmentConfig({source}{shown})"


@refuse_keywords("create_environment", **_OF_EARLIER_APIS)
def create_environment(  # noqa: PLR0913 - as EnvironmentConfig
    workspace: str | os.PathLike[str] | None = None,
    docker_image: str | None = None,
    pip_packages: Sequence[str] | None = None,
    env_vars: Mapping[str, str | None] | None = None,
    extras: Sequence[str] | None = None,
    *,
    setup: Sequence[str] | None = None,
    secrets: Sequence[str] | None = None,
    cache_volume: str | None = None,
    extra_dependency_groups: Sequence[str] | None = None,
) -> EnvironmentConfig:
    """Return an environment with the defaults filled in.

    Args:
        workspace: The current directory when neither it nor `docker_image` is given.
        docker_image: As in EnvironmentConfig, and so are the others.
        pip_packages: Packages.
        env_vars: Variables; they win over the defaults: HF_DATASETS_TRUST_REMOTE_CODE=1,
            TOKENIZERS_PARALLELISM=false, and HF_TOKEN and WANDB_API_KEY of this process. None takes one
            out.
        extras: Extras.
        setup: Shell commands.
        secrets: Names of Secrets.
        cache_volume: Name of a claim.
        extra_dependency_groups: The same as `extras`.

    Raises:
        InvalidRequestError: A value means nothing.
    """
    if env_vars is not None and not isinstance(env_vars, Mapping):
        raise InvalidRequestError("EnvironmentConfig.env_vars", _not_a_mapping(env_vars), _BY_NAME)
    own = os.environ  # noqa: TID251 - the defaults are those of the process that asks
    copied = {name: own[name] for name in COPIED_VARIABLES if own.get(name)}
    variables = {**DEFAULT_VARIABLES, **copied, **(env_vars or {})}
    if workspace is None and docker_image is None:
        workspace = os.getcwd()  # noqa: PTH109 - text, as users give it
    return EnvironmentConfig(
        workspace,
        docker_image,
        pip_packages,
        {name: value for name, value in variables.items() if value is not None},
        extras,
        setup=setup,
        secrets=secrets,
        cache_volume=cache_volume,
        extra_dependency_groups=extra_dependency_groups,
    )


def is_confidential(variable: str, value: str) -> bool:
    """Return whether a variable looks secret: its name (WANDB_API_KEY), a URL with a password, or a token."""
    return is_secret_name(variable) or holds_credentials(value) or holds_token(value)


_BY_NAME: Final = "Give variables by name: {'LOG_LEVEL': 'debug'}."


def _check_source(workspace: Any, docker_image: Any) -> None:
    if workspace is not None and docker_image is not None:
        remedy = "Leave one out; ResourceConfig.image sets the image that a workspace runs in."
        raise InvalidRequestError(
            "EnvironmentConfig", "Cannot specify both workspace and docker_image", remedy
        )
    if workspace is None and docker_image is None:
        remedy = "Use create_environment(), which takes the current directory."
        raise InvalidRequestError(
            "EnvironmentConfig", "Must specify either workspace or docker_image", remedy
        )
    if docker_image is not None:
        check_image("EnvironmentConfig.docker_image", docker_image)
        return
    remedy = "Give a directory, such as '.', or leave it out for the current one."
    path = os.fspath(workspace) if isinstance(workspace, os.PathLike) else workspace
    check_text("EnvironmentConfig.workspace", path, remedy=remedy)


def _texts(field: str, value: Any, remedy: str) -> list[str]:
    return list(check_texts(f"EnvironmentConfig.{field}", value, remedy=remedy))


def _not_a_mapping(value: Any) -> str:
    return f"is of type {type(value).__name__}, not a mapping"


def _variables(variables: Any) -> dict[str, str]:
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise InvalidRequestError("EnvironmentConfig.env_vars", _not_a_mapping(variables), _BY_NAME)
    for name, value in variables.items():
        if not isinstance(name, str) or not is_encodable(name) or not name or "=" in name:
            remedy = "Names of variables are text without '=', such as 'LOG_LEVEL'."
            raise InvalidRequestError(
                "EnvironmentConfig.env_vars", f"has the name {show_value(name)}", remedy
            )
        where = f"EnvironmentConfig.env_vars[{name!r}]"
        if not isinstance(value, str):
            # The value isn't shown: it may be secret.
            raise InvalidRequestError(
                where, f"is of type {type(value).__name__}, not text", "Write it as text: '1'."
            )
        if not is_encodable(value):
            raise InvalidRequestError(where, "holds a character that no variable can", "Take it out.")
    return dict(variables)
