"""The CRD is what the models and rules say, in the forms that Kubernetes knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field

from fray.wire.frayactor import FRAYACTOR
from fray.wire.model import CustomKind, WireModel
from fray.wire.rules import RULES, UPDATE_RULES
from fray.wire.schema import (
    FRAYJOB,
    UnsupportedSchemaError,
    build_crd,
    build_schema,
    render_crd,
    structural_schema,
)

CRDS = Path(__file__).parents[3] / "crds"
CRD_FILE = CRDS / "frayjobs.fray.dev.yaml"


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a structural schema with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}".lstrip("."))
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from nodes(schema[key], f"{path}{step}")


NODES = dict(nodes(build_schema(FRAYJOB)))


@pytest.mark.parametrize("custom", [FRAYJOB, FRAYACTOR], ids=lambda custom: custom.kind)
def test_the_file_in_crds_is_up_to_date(custom: CustomKind[Any]) -> None:
    file = CRDS / f"{custom.plural}.{custom.group}.yaml"
    assert file.read_text(encoding="utf-8") == render_crd(build_crd(custom)), "run `make crds`"


def test_the_same_crd_gives_the_same_text_which_reads_back() -> None:
    text = render_crd(build_crd())
    assert text == render_crd(build_crd())
    assert yaml.safe_load(text) == build_crd()
    assert text.startswith("# Generated from src/fray/wire/ by `make crds`")


def test_the_file_is_small_and_passes_through_helm() -> None:
    text = CRD_FILE.read_text(encoding="utf-8")
    assert len(text.encode()) < 150_000
    assert "{{" not in text
    assert "&id" not in text


def test_every_field_has_a_description() -> None:
    silent = [
        path
        for path, node in [*NODES.items(), *nodes(build_schema(FRAYACTOR))]
        if "description" not in node and not path.startswith("metadata") and not path.endswith(("[]", "*"))
    ]
    assert silent == []


def test_whatever_cel_reads_has_a_largest_size() -> None:
    unbounded = [
        path
        for path, node in NODES.items()
        if path.startswith("spec.")
        and (
            (node.get("type") == "string" and not {"maxLength", "enum"} & node.keys())
            or (node.get("type") == "array" and "maxItems" not in node)
            or ("additionalProperties" in node and "maxProperties" not in node)
            or ("x-kubernetes-int-or-string" in node and "maxLength" not in node)
        )
    ]
    assert unbounded == []


def test_every_pattern_is_anchored() -> None:
    loose = [p for p, n in NODES.items() if "pattern" in n and n["pattern"][:: len(n["pattern"]) - 1] != "^$"]
    assert loose == []


def test_objects_of_undeclared_fields_are_only_compared_as_a_whole() -> None:
    # CEL takes two for equal when their common keys are, unless the node has no type at all.
    open_objects = [
        path
        for path, node in NODES.items()
        if node.get("x-kubernetes-preserve-unknown-fields") and ("type" in node or "properties" in node)
    ]
    assert open_objects == []


def test_the_api_server_fills_in_nothing_in_status() -> None:
    assert [path for path, node in NODES.items() if path.startswith("status") and "default" in node] == []


def test_counts_in_status_have_a_least_value() -> None:
    numbers = {
        path: node.get("minimum")
        for path, node in NODES.items()
        if path.startswith("status") and node.get("type") == "integer"
    }
    assert {path for path, least in numbers.items() if least == 1} == {
        "status.attempt",
        "status.attempts[].number",
    }
    # An exit code may be any number, and generations are the server's own.
    assert {path for path, least in numbers.items() if least is None} == {
        "status.observedGeneration",
        "status.conditions[].observedGeneration",
        "status.attempts[].exitCode",
    }


def test_every_rule_stands_in_the_crd() -> None:
    both = [*NODES.values(), *dict(nodes(build_schema(FRAYACTOR))).values()]
    written = [v["rule"] for node in both for v in node.get("x-kubernetes-validations", [])]
    for table in (RULES, UPDATE_RULES):
        for target, rules in table.items():
            assert [r.cel for r in rules if r.cel not in written] == [], target


def test_a_rule_blames_a_field_that_exists() -> None:
    for path, node in NODES.items():
        for validation in node.get("x-kubernetes-validations", []):
            if blamed := validation.get("fieldPath"):
                assert f"{path}{blamed}".lstrip(".") in NODES


# --- the translation, form by form ---------------------------------------------------------------------


class Inner(WireModel):
    """An inner model."""

    size: Annotated[int, Field(ge=1)] = 3
    """How large."""


class Forms(WireModel):
    """Every form that the models use."""

    must: str
    """Needed."""
    may: str | None = None
    """May be
    absent."""
    inner: Inner = Inner()
    """With a default."""
    inners: Annotated[list[Inner], Field(max_length=2)] = []  # noqa: RUF012 - pydantic copies it
    """Many."""
    kind_of: Literal["a", "b"] = "a"
    """A choice."""
    one: Literal["x"] = "x"
    """No choice."""
    amount: int | Annotated[str, Field(max_length=4)] = 1
    """Two types."""
    words: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    """A map."""
    anything: dict[str, Any] | None = None
    """Open."""


def test_each_form_has_its_structural_one() -> None:
    inner = {"type": "object", "properties": {"size": {"description": "How large.", "type": "integer"}}}
    inner["properties"]["size"] |= {"minimum": 1, "default": 3}  # type: ignore[index]
    assert structural_schema(Forms) == {
        "description": "Every form that the models use.",
        "type": "object",
        "required": ["must"],
        "properties": {
            "must": {"description": "Needed.", "type": "string"},
            "may": {"description": "May be absent.", "type": "string"},
            "inner": {"description": "With a default.", **inner, "default": {"size": 3}},
            "inners": {
                "description": "Many.",
                "type": "array",
                "maxItems": 2,
                "items": {"description": "An inner model.", **inner},
            },
            "kindOf": {"description": "A choice.", "type": "string", "enum": ["a", "b"], "default": "a"},
            "one": {"description": "No choice.", "type": "string", "enum": ["x"], "default": "x"},
            "amount": {
                "description": "Two types.",
                "x-kubernetes-int-or-string": True,
                "maxLength": 4,
                "default": 1,
            },
            "words": {
                "description": "A map.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "anything": {
                "description": "Open.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    }


class Exclusive(WireModel):
    """A form that CRDs don't have."""

    number: Annotated[int, Field(gt=0)]


class Choice(WireModel):
    """A form that CRDs don't have."""

    value: bool | str


class Unique(WireModel):
    """A form that CRDs don't have."""

    values: set[str]


class Pair(WireModel):
    """A form that CRDs don't have."""

    values: tuple[int, int]


class Untyped(WireModel):
    """A form that CRDs don't have."""

    value: Any


class Recursive(WireModel):
    """A form that CRDs don't have."""

    value: Recursive | None = None


@pytest.mark.parametrize("model", [Exclusive, Choice, Unique, Pair, Untyped, Recursive])
def test_a_form_that_kubernetes_lacks_is_refused(model: type[WireModel]) -> None:
    with pytest.raises(UnsupportedSchemaError, match=model.__name__):
        structural_schema(model)
