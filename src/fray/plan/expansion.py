"""What a pod's process will see: the kubelet's expansion of environment and arguments.

The local backend uses it to start processes, tests use it to check what each rank gets. It follows
the kubelet's rules (kubernetes `third_party/forked/golang/expansion`): `$(NAME)` refers to a variable
defined earlier, an unknown one stays as it is, `$$` is a dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["UnresolvedReferenceError", "escape_text", "expand_arguments", "expand_environment", "expand_text"]

LABEL_FIELD = re.compile(r"metadata\.(?P<where>labels|annotations)\['(?P<key>[^']+)'\]")
REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")

SPECIAL_DOLLAR = re.compile(r"\$(?=[$(])")
"""A dollar sign that the kubelet gives a meaning to; doubled, it means itself."""


class UnresolvedReferenceError(LookupError):
    """A variable refers to something that isn't known here, such as a Secret; `args` are name and source."""


def escape_text(text: str) -> str:
    """Return what expands to `text`: each dollar sign that the kubelet gives a meaning to is doubled."""
    return SPECIAL_DOLLAR.sub("$$", text)


def expand_text(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with every `$(NAME)` of a known variable replaced."""

    def replace(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        return variables.get(match["name"], match.group())

    return REFERENCE.sub(replace, text)


def expand_environment(
    entries: Iterable[Mapping[str, Any]],
    fields: Mapping[str, str],
    *,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables that a container's `env` gives to a process.

    `fields` maps downward-API paths (`metadata.name`) and label keys to their values; `inherited` are
    variables known beforehand (envFrom), which entries may refer to and override. As for the kubelet, a
    label that the pod doesn't have is empty, and a value that isn't empty wins over `valueFrom`.

    Raises `UnresolvedReferenceError` for an entry that refers to a Secret, ConfigMap or unknown field.
    """
    variables = dict(inherited or {})
    for entry in entries:
        name = str(entry["name"])
        value, source = entry.get("value"), entry.get("valueFrom")
        if value or not source:
            variables[name] = expand_text(str(value or ""), variables)
        else:
            variables[name] = _resolve(name, source, fields)
    return variables


def expand_arguments(arguments: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return a command with every `$(NAME)` of a known variable replaced."""
    return [expand_text(argument, variables) for argument in arguments]


def _resolve(name: str, source: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    path = str(source.get("fieldRef", {}).get("fieldPath", ""))
    match = LABEL_FIELD.fullmatch(path)
    if match is not None:
        return fields.get(match["key"], "")
    if path in fields:
        return fields[path]
    kind = next(iter(source), "nothing")
    raise UnresolvedReferenceError(name, f"{kind} {path or source.get(kind)}")
