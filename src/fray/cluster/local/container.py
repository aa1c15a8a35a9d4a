"""The container `main` of a pod template, read with its types checked.

A podTemplate overlay may hold anything, and the API server that would refuse it isn't here. What the
container means on this machine is `pods` and `support`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fray.errors import FieldError, InvalidJobError, UnsupportedFeatureError
from fray.vocabulary import CONTAINER

__all__ = ["MainContainer", "read_main_container"]

DEFAULT_GRACE_SECONDS = 30.0
"""terminationGracePeriodSeconds of a pod that sets none (core/v1)."""
TEMPLATE = "spec.podTemplate"
MAIN = f"{TEMPLATE}.spec.containers[{CONTAINER}]"


@dataclass(frozen=True)
class MainContainer:
    """What the local backend needs of a pod template."""

    command: tuple[str, ...]
    env: tuple[Mapping[str, Any], ...] = field(repr=False)
    env_from: tuple[Mapping[str, Any], ...]
    working_dir: str | None
    grace_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def read_main_container(template: Mapping[str, Any], *, job_name: str) -> MainContainer:
    """Return the container that runs the job's command; `template` is a pod template's manifest.

    Raises:
        InvalidJobError: the overlay has put something of a wrong type into the template.
        UnsupportedFeatureError: the overlay has removed the command, so only the image knows it.
    """
    reader = _Reader(job_name)
    metadata = reader.mapping(template.get("metadata"), f"{TEMPLATE}.metadata")
    spec = reader.mapping(template.get("spec"), f"{TEMPLATE}.spec")
    containers = reader.mappings(spec.get("containers"), f"{TEMPLATE}.spec.containers")
    container = next((item for item in containers if item.get("name") == CONTAINER), None)
    if container is None:
        raise reader.problem(f"{TEMPLATE}.spec.containers", f"the container {CONTAINER!r} is missing")
    command = reader.texts(container.get("command"), f"{MAIN}.command")
    if not command:
        raise UnsupportedFeatureError(
            "a container without command",
            f"{MAIN} removes it, and only the image knows its own",
            "Write the whole command into spec.entrypoint.command.",
        )
    env = reader.mappings(container.get("env"), f"{MAIN}.env")
    for entry in env:
        if not isinstance(entry.get("name"), str) or not isinstance(entry.get("value", ""), str):
            raise reader.problem(f"{MAIN}.env", f"{dict(entry)!r} needs a name and a value that are text")
        for reference in reader.mapping(entry.get("valueFrom"), f"{MAIN}.env").values():
            reader.mapping(reference, f"{MAIN}.env")
    working_dir = container.get("workingDir")
    if working_dir is not None and not isinstance(working_dir, str):
        raise reader.problem(f"{MAIN}.workingDir", "must be text")
    return MainContainer(
        command=(*command, *reader.texts(container.get("args"), f"{MAIN}.args")),
        env=env,
        env_from=reader.mappings(container.get("envFrom"), f"{MAIN}.envFrom"),
        working_dir=working_dir,
        grace_seconds=reader.seconds(spec.get("terminationGracePeriodSeconds")),
        labels=reader.text_map(metadata.get("labels"), f"{TEMPLATE}.metadata.labels"),
        annotations=reader.text_map(metadata.get("annotations"), f"{TEMPLATE}.metadata.annotations"),
    )


@dataclass(frozen=True)
class _Reader:
    """Turns untyped parts of a manifest into typed ones; null counts as empty."""

    job_name: str

    def problem(self, path: str, message: str) -> InvalidJobError:
        return InvalidJobError(self.job_name, (FieldError(path, message),))

    def mapping(self, value: object, path: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.problem(path, "must be a mapping")
        return value

    def mappings(self, value: object, path: str) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.mapping(item, path) for item in self._list(value, path))

    def texts(self, value: object, path: str) -> tuple[str, ...]:
        items = self._list(value, path)
        if not all(isinstance(item, str) for item in items):
            raise self.problem(path, "must be a list of text; put numbers and booleans in quotes")
        return tuple(items)

    def text_map(self, value: object, path: str) -> Mapping[str, str]:
        mapping = self.mapping(value, path)
        if not all(isinstance(item, str) for item in mapping.values()):
            raise self.problem(path, "must hold text only; put numbers and booleans in quotes")
        return mapping

    def seconds(self, value: object) -> float:
        if value is None:
            return DEFAULT_GRACE_SECONDS
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            path = f"{TEMPLATE}.spec.terminationGracePeriodSeconds"
            raise self.problem(path, "must be a whole number from 0")
        return float(value)

    def _list(self, value: object, path: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.problem(path, "must be a list")
        return value
