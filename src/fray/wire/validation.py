"""Judging a manifest in Python exactly as the API server would at `kubectl apply`.

First the structure against the CRD's schema, then, where that is right, the rules: the same fields, paths
and rule texts, so a mistake reads the same with and without a cluster. Only dicts: reading YAML is the
command line's. Whether a cluster can run the job is decided later, by the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from fray.errors import FieldError, InvalidJobError
from fray.wire.frayjob import FrayJob
from fray.wire.model import CustomKind, WireModel
from fray.wire.rules import RULES
from fray.wire.schema import FRAYJOB, build_schema
from fray.wire.structure import find_structure_problems

__all__ = ["check_job", "validate_manifest", "validate_object"]

Model = TypeVar("Model", bound=WireModel)


def validate_manifest(manifest: Mapping[str, Any]) -> FrayJob:
    """Return the FrayJob that a manifest describes, as `validate_object`."""
    return validate_object(manifest, FRAYJOB)


def validate_object(manifest: Mapping[str, Any], custom: CustomKind[Model]) -> Model:
    """Return the object of a kind that a manifest describes, if the API server would take it.

    Args:
        manifest: The whole object as JSON data. A `status` is ignored, as on any write but the
            operator's.
        custom: The kind.

    Returns:
        The object, without status.

    Raises:
        InvalidJobError: Every field that is wrong. Unknown fields, nulls and values of another type
            are; rules are judged only once nothing of that is left, as in the API server.
    """
    written = {key: value for key, value in manifest.items() if key != "status"}
    _check_structure(written, custom)
    try:
        found = custom.model.from_manifest(written)
    except ValidationError as error:
        # The models and their schema judge alike (tests hold them to it); a gap between them is reported too.
        gaps = tuple(FieldError(_path(e["loc"]), e["msg"]) for e in error.errors(include_url=False))
        raise InvalidJobError(_name_of(written), gaps, custom.kind) from error
    _check_rules(found, written, custom)
    return found


def check_job(job: FrayJob) -> None:
    """Judge a FrayJob that was made in Python, as `validate_object` does its manifest. Raises the same."""
    written = {key: value for key, value in job.to_manifest().items() if key != "status"}
    _check_structure(written, FRAYJOB)
    _check_rules(job, written, FRAYJOB)


def _check_structure(written: Mapping[str, Any], custom: CustomKind[Any]) -> None:
    problems = [*_type_problems(written, custom), *_metadata_problems(written.get("metadata"))]
    problems += [
        problem
        for problem in find_structure_problems(written, build_schema(custom))
        if not problem.path.startswith("metadata.")
    ]
    if problems:
        raise InvalidJobError(_name_of(written), tuple(problems), custom.kind)


def _check_rules(found: WireModel, written: Mapping[str, Any], custom: CustomKind[Any]) -> None:
    if broken := tuple(_broken_rules(found, "")):
        raise InvalidJobError(_name_of(written), broken, custom.kind)


# --- what every Kubernetes object has -------------------------------------------------------------------

_METADATA_FIELDS: Final = frozenset(
    {"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"}
    | {"generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"}
    | {"resourceVersion", "selfLink", "uid"}
)
"""Fields of meta/v1 ObjectMeta."""
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LABEL_KEY: Final = re.compile(
    rf"(?:(?P<prefix>{_SUBDOMAIN.pattern})/)?(?P<name>[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)", re.ASCII
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)


def _name_of(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _type_problems(manifest: Mapping[str, Any], custom: CustomKind[Any]) -> Iterator[FieldError]:
    expected = {"apiVersion": f"{custom.group}/{custom.version}", "kind": custom.kind}
    for field, value in expected.items():
        if manifest.get(field) != value:
            yield FieldError(field, f"must be {value}")


def _metadata_problems(metadata: Any) -> Iterator[FieldError]:
    if not isinstance(metadata, dict):
        if metadata is not None:
            return  # find_structure_problems says so
        metadata = {}
    for key in metadata:
        if key not in _METADATA_FIELDS:
            yield FieldError(f"metadata.{key}", "unknown field")
    name = metadata.get("name")
    if name is None and not metadata.get("generateName"):
        yield FieldError("metadata.name", "is required")
    elif name is not None and not (isinstance(name, str) and _SUBDOMAIN.fullmatch(name) and len(name) <= 253):
        yield FieldError(
            "metadata.name",
            "must be lower case letters, digits and '-', beginning and ending with a letter or digit",
        )
    yield from _map_problems("metadata.labels", metadata.get("labels"), value=_LABEL_VALUE, longest=63)
    yield from _map_problems("metadata.annotations", metadata.get("annotations"), value=None, longest=None)


def _map_problems(
    path: str, entries: Any, *, value: re.Pattern[str] | None, longest: int | None
) -> Iterator[FieldError]:
    """Labels or annotations. The API server names the map, not the entry."""
    if entries is None:
        return
    if not isinstance(entries, dict):
        yield FieldError(path, "must be a map")
        return
    for key, text in entries.items():
        legal = _LABEL_KEY.fullmatch(key) if isinstance(key, str) else None
        if legal is None or len(legal["name"]) > 63 or len(legal["prefix"] or "") > 253:
            yield FieldError(path, f"{key!r} must be a key such as team or example.com/team")
        if not isinstance(text, str):
            yield FieldError(path, f"the value of {key!r} must be a string: put it into quotes")
        elif value and not (value.fullmatch(text) and len(text) <= (longest or len(text))):
            yield FieldError(
                path, f"the value of {key!r} must be at most {longest} letters, digits, '-', '_' and '.'"
            )


# --- rules ----------------------------------------------------------------------------------------------


def _broken_rules(model: WireModel, path: str) -> Iterator[FieldError]:
    """Judge a model, then its fields, going down: in the API server's order but for that of siblings."""
    yield from _judge(type(model), "", model, path)
    for field, info in type(model).model_fields.items():
        value = getattr(model, field)
        if value is None or (not path and field == "status"):
            continue
        below = _join(path, info.alias or field)
        yield from _judge(type(model), field, value, below)
        items = [(below, value)] if not isinstance(value, list) else _indexed(below, value)
        for place, item in items:
            if isinstance(item, WireModel):
                yield from _broken_rules(item, place)


def _judge(model: type[WireModel], field: str, value: Any, path: str) -> Iterator[FieldError]:
    for rule in RULES.get((model, field), ()):
        if not rule.holds(value):
            yield FieldError(_join(path, rule.field), rule.explain(value))


# --- paths ----------------------------------------------------------------------------------------------


def _join(path: str, field: str) -> str:
    return ".".join(part for part in (path, field) if part)


def _indexed(path: str, items: list[Any]) -> list[tuple[str, Any]]:
    return [(f"{path}[{index}]", item) for index, item in enumerate(items)]


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path
