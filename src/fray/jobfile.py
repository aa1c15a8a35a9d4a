"""Reading a job file the way kubectl reads a manifest: YAML or JSON, and the FrayJobs in it.

Only text becomes data here; whether the data is a legal FrayJob is `fray.wire.validation`. kubectl's
YAML is version 1.1 as Go's yaml.v2 resolves it, which differs from PyYAML's: timestamps stay text,
`1:30` is text and not 90, `1e3` is a number, `y` and `n` are booleans, keys become text. Source:
`goyaml.v2/resolve.go` and `yaml.go` in sigs.k8s.io/yaml.

GPU types may be written short (`H100`), which kubectl doesn't know, and become GKE's names here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from fray.accelerators import resolve_gpu_type
from fray.errors import JobFileError, UnknownAcceleratorError
from fray.vocabulary import FRAYJOB_KIND

__all__ = ["STDIN", "JobFile", "JobFiles", "parse_job_file", "read_job_file", "read_job_files"]

STDIN = "-"
MAX_BYTES = 3 * 1024 * 1024
"""The API server takes no larger request."""
MAX_VALUES = 1_000_000
"""Values after aliases are followed: nine nested ones can stand for a billion."""
GPUS = (("spec", "resources", "gpu"), ("spec", "workers", "resources", "gpu"))
"""Where a FrayJob names the type of its GPUs."""


@dataclass(frozen=True)
class JobFile:
    """The one FrayJob of a file, as plain data, and what else the file holds (`Secret/name`)."""

    manifest: dict[str, Any]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobFiles:
    """All FrayJobs of a file, at least one, and what else the file holds."""

    manifests: tuple[dict[str, Any], ...]
    others: tuple[str, ...] = ()


def read_job_file(path: str, *, stdin: BinaryIO) -> JobFile:
    """Return the FrayJob in a file; `-` reads `stdin`.

    Raises:
        JobFileError: the file can't be read, is no YAML or JSON, or doesn't hold exactly one FrayJob.
    """
    name = _name_of(path)
    return parse_job_file(_read(path, name, stdin), name=name)


def read_job_files(path: str, *, stdin: BinaryIO) -> JobFiles:
    """Return all FrayJobs in a file; `-` reads `stdin`.

    Raises:
        JobFileError: the file can't be read, is no YAML or JSON, or holds no FrayJob.
    """
    name = _name_of(path)
    return _parse(_read(path, name, stdin), name=name)


def _name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def _read(path: str, name: str, stdin: BinaryIO) -> bytes:
    try:
        if path == STDIN:
            content = stdin.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise JobFileError(name, f"can't be read: {problem}") from error
    if len(content) > MAX_BYTES:
        raise JobFileError(name, "is larger than 3 MiB, the most that the API server takes")
    return content


def parse_job_file(content: bytes, *, name: str) -> JobFile:
    """Return the one FrayJob in the content of a file; `name` is the file's, for errors.

    Raises:
        JobFileError: it is no YAML or JSON, or doesn't hold exactly one FrayJob.
    """
    found = _parse(content, name=name)
    if len(found.manifests) > 1:
        names = ", ".join(_describe(job) for job in found.manifests)
        count = len(found.manifests)
        raise JobFileError(name, f"holds {count} FrayJobs ({names}); put each in a file of its own")
    return JobFile(found.manifests[0], found.others)


def _parse(content: bytes, *, name: str) -> JobFiles:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobFileError(name, f"is not UTF-8 text (byte {error.start})") from error
    jobs: list[dict[str, Any]] = []
    others: list[str] = []
    for number, document in enumerate(_documents(text, name), start=1):
        for item in _items(document):
            if not isinstance(item, dict):
                raise JobFileError(name, f"document {number} is {_kind_of(item)}, not a mapping")
            if item.get("kind") == FRAYJOB_KIND:
                _resolve_gpu_types(item)
                jobs.append(item)
            else:
                others.append(_describe(item))
    if jobs:
        return JobFiles(tuple(jobs), tuple(others))
    found = f"; it holds {', '.join(others)}, for `kubectl apply`" if others else "; it is empty"
    raise JobFileError(name, f"holds no object of kind FrayJob{found}")


def _documents(text: str, name: str) -> Iterator[Any]:
    """Yield the documents that aren't empty, as data that JSON could hold."""
    if text.lstrip().startswith("{"):
        try:
            # YAML holds all of JSON but for tabs between its parts, which JSON allows.
            yield json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, name))
        except json.JSONDecodeError:
            pass  # a flow mapping of YAML starts with a brace, too
        except RecursionError as error:
            raise JobFileError(name, "is nested too deeply") from error
        else:
            return
    budget = _Budget(MAX_VALUES)
    try:
        for document in yaml.load_all(text, Loader=_KubectlLoader):
            if document is not None:
                yield _plain(document, budget)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise JobFileError(name, f"is no valid YAML: {where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise JobFileError(name, f"is no valid YAML: {str(error).splitlines()[0]}") from error
    except ValueError as error:
        # Also from a tag that its value doesn't fit, such as `!!int abc`.
        raise JobFileError(name, str(error)) from error
    except RecursionError as error:
        raise JobFileError(name, "is nested too deeply") from error


def _items(document: Any) -> list[Any]:
    """Return the objects of a document: itself, or the items of a `List`."""
    if isinstance(document, dict) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else []
    return [document]


def _resolve_gpu_types(job: dict[str, Any]) -> None:
    """Put GKE's names in place of shorter ones; an unknown name stays, for validation to report."""
    for path in GPUS:
        part: Any = job
        for key in path:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(part.get("type"), str):
            with suppress(UnknownAcceleratorError):
                part["type"] = resolve_gpu_type(part["type"])


def _describe(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    own_name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{item.get('kind') or 'an object without kind'}/{own_name or '?'}"


def _kind_of(value: Any) -> str:
    return {list: "a list", str: "text", bool: "a boolean"}.get(type(value), "a number")


def _unique(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise JobFileError(name, f"key {key!r} is given twice in one mapping")
        result[key] = value
    return result


class _UnusableValueError(ValueError):
    """YAML that no JSON can hold; the text says what and where."""


@dataclass
class _Budget:
    values: int


def _plain(value: Any, budget: _Budget) -> Any:
    """Return `value` with text keys and nothing shared, as its JSON form would be."""
    budget.values -= 1
    if budget.values < 0:
        raise _UnusableValueError(f"its aliases stand for more than {MAX_VALUES} values")
    if isinstance(value, dict):
        return {key: _plain(item, budget) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, budget) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise _UnusableValueError(f"holds the number {value}, which JSON has no form for")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise _UnusableValueError(f"holds a {type(value).__name__}, which JSON has no form for")
    return value


class _KubectlLoader(yaml.SafeLoader):
    """PyYAML's safe loader with Go's resolution of plain scalars, and without duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own shape


def _construct_mapping(loader: _KubectlLoader, node: yaml.MappingNode) -> Iterator[dict[str, Any]]:
    # A generator, as PyYAML's own: a mapping that contains itself must exist before its values do.
    result: dict[str, Any] = {}
    yield result
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag == f"{_TAG}merge":
            continue
        key = _key(loader, key_node)
        if key in seen:
            problem = f"key {key!r} is given twice in one mapping"
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        # Merged keys stand first, so a mapping's own value wins.
        result[_key(loader, key_node)] = loader.construct_object(value_node, deep=True)


def _key(loader: _KubectlLoader, node: yaml.Node) -> str:
    key = loader.construct_object(node, deep=True)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return f"{key:g}"
    if isinstance(key, str | int):
        return str(key)
    raise yaml.constructor.ConstructorError(None, None, "a key must be text", node.start_mark)


def _construct_int(loader: _KubectlLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lower()
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _construct_bool(loader: _KubectlLoader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


def _construct_float(loader: _KubectlLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _construct_text(loader: _KubectlLoader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_TAG = "tag:yaml.org,2002:"
_PLAIN = (
    (
        "bool",
        "y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        "yYnNtTfFoO",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (
        "int",
        r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]{1,24}|0|[1-9][0-9_]{0,19})",
        "-+0123456789",
    ),
    (
        "float",
        r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
)
for _name, _pattern, _first in _PLAIN:
    _KubectlLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
_KubectlLoader.add_constructor(f"{_TAG}map", _construct_mapping)
_KubectlLoader.add_constructor(f"{_TAG}int", _construct_int)
_KubectlLoader.add_constructor(f"{_TAG}bool", _construct_bool)
_KubectlLoader.add_constructor(f"{_TAG}float", _construct_float)
_KubectlLoader.add_constructor(f"{_TAG}timestamp", _construct_text)
