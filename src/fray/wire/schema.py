"""From the models and their rules to the CustomResourceDefinition that the API server enforces.

Kubernetes takes only *structural* schemas, which JSON schema as pydantic writes it isn't; the translation
knows the few forms that the models use and fails loudly on any other. Pure: `tools/generate_crds.py`
writes the file.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from fray.vocabulary import FRAYJOB_KIND, FRAYJOB_PLURAL, FRAYJOB_SHORT_NAME
from fray.wire.frayjob import FrayJob
from fray.wire.model import CustomKind, WireModel, prune_default
from fray.wire.rule import Rule, UpdateRule
from fray.wire.rules import RULES, UPDATE_RULES, Target

__all__ = [
    "FRAYJOB",
    "UnsupportedSchemaError",
    "build_crd",
    "build_schema",
    "render_crd",
    "structural_schema",
]

_COPIED: Final = frozenset(
    {"type", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"}
    | {"minProperties", "maxProperties", "required", "nullable", "x-kubernetes-int-or-string"}
    | {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
)
_DROPPED: Final = frozenset({"title"})
_TRANSLATED: Final = frozenset(
    {"description", "default", "anyOf", "const", "properties", "items", "additionalProperties"}
)


class UnsupportedSchemaError(ValueError):
    """A form of JSON schema that has no structural one, or that this translation doesn't know yet."""


# --- JSON schema -> structural schema -------------------------------------------------------------------


def structural_schema(model: type[WireModel]) -> dict[str, Any]:
    """Return the structural schema of a model, with the rules of all models in it.

    Args:
        model: The model; its fields appear under their names on the wire.

    Returns:
        An `openAPIV3Schema` node. Properties keep the order of the fields.

    Raises:
        UnsupportedSchemaError: A field has a form that CustomResourceDefinitions don't have.
    """
    schema = model.model_json_schema(by_alias=True, schema_generator=_WithDescriptions)
    return _translate(schema, definitions=schema.get("$defs", {}), path=model.__name__)


class _WithDescriptions(GenerateJsonSchema):
    """Describes fields by their docstrings, which `use_attribute_docstrings` would read at each import."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of one model."""
        made = super().model_schema(schema)
        model = schema["cls"]
        parts = [part for part in reversed(model.__mro__) if issubclass(part, WireModel)]
        for part in parts:
            for field, text in _docstrings(part.__module__).get(part.__name__, {}).items():
                if (known := model.model_fields.get(field)) is not None and known.description is None:
                    made["properties"][known.alias]["description"] = text
        return made


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of all classes of a module, by class and field."""
    found: dict[str, dict[str, str]] = {}
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:  # it was installed without; rules count, not descriptions
        return found
    for made in ast.walk(ast.parse(source)):
        if isinstance(made, ast.ClassDef):
            for field, text in pairwise(made.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(words))):
                        found.setdefault(made.name, {})[name] = inspect.cleandoc(words)
    return found


def _translate(node: Mapping[str, Any], *, definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    name, node = _resolve(node, definitions, path)
    definitions = {key: value for key, value in definitions.items() if key != name}
    if unknown := node.keys() - _COPIED - _DROPPED - _TRANSLATED:
        raise UnsupportedSchemaError(f"{path}: no structural form of {', '.join(sorted(unknown))} is known")

    def below(part: Mapping[str, Any], step: str) -> dict[str, Any]:
        return _translate(part, definitions=definitions, path=f"{path}.{step}")

    result: dict[str, Any] = {}
    if "description" in node:
        result["description"] = " ".join(node["description"].split())
    result |= {key: node[key] for key in _in_order(node) if key in _COPIED}
    if "const" in node:
        result |= {"type": node.get("type", "string"), "enum": [node["const"]]}
    if (default := prune_default(node.get("default"))) is not None:
        result["default"] = default
    if "items" in node:
        result["items"] = below(node["items"], "items")
    match node.get("additionalProperties"):
        case True:
            result["x-kubernetes-preserve-unknown-fields"] = True
        case dict() as values:
            result["additionalProperties"] = below(values, "*")
    if "properties" in node:
        result["properties"] = {field: below(value, field) for field, value in node["properties"].items()}
    if not result.keys() & {"type", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"}:
        raise UnsupportedSchemaError(f"{path}: it has no type")
    _attach_rules(result, model=name)
    return result


def _resolve(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> tuple[str, Mapping[str, Any]]:
    """Follow `$ref` and optional forms; the name is that of the model reached, else that of `path`."""
    name = path if "." not in path else ""
    node = {key: value for key, value in node.items() if key != "$defs"}
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            name = node.pop("$ref").removeprefix("#/$defs/")
            if name not in definitions:
                raise UnsupportedSchemaError(f"{path}: {name} holds itself, which no structural schema can")
            node = {**definitions[name], **node}
        else:
            node = {**_choice(node.pop("anyOf"), path), **node}
    return name, node


def _choice(alternatives: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """The one alternative that isn't null (an absent field stands for it), or an integer or a string."""
    present = [alternative for alternative in alternatives if alternative != {"type": "null"}]
    if len(present) == 1:
        return present[0]
    if [alternative.get("type") for alternative in present] == ["integer", "string"]:
        bounds = {key: value for part in present for key, value in part.items() if key != "type"}
        return {**bounds, "x-kubernetes-int-or-string": True}
    raise UnsupportedSchemaError(f"{path}: a choice between {present} has no structural form")


def _in_order(node: Mapping[str, Any]) -> list[str]:
    return sorted(node.keys() & _COPIED, key=lambda key: (key != "type", key))


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy in which the API server fills nothing in: its writer says what it has seen, and no more."""
    copy = {key: value for key, value in schema.items() if key != "default"}
    if "items" in copy:
        copy["items"] = _without_defaults(copy["items"])
    if "properties" in copy:
        copy["properties"] = {name: _without_defaults(value) for name, value in copy["properties"].items()}
    return copy


# --- rules ----------------------------------------------------------------------------------------------


def _attach_rules(schema: dict[str, Any], *, model: str) -> None:
    """Put the rules of a model and of its fields into its schema."""
    tables: tuple[Mapping[Target, tuple[Rule[Any] | UpdateRule, ...]], ...] = (RULES, UPDATE_RULES)
    for table in tables:
        for (owner, field), rules in table.items():
            if owner.__name__ == model:
                alias = owner.model_fields[field].alias if field else None
                judged = schema["properties"][alias] if alias else schema
                judged.setdefault("x-kubernetes-validations", []).extend(map(_validation, rules))


def _validation(rule: Rule[Any] | UpdateRule) -> dict[str, str]:
    validation = {"rule": rule.cel}
    if isinstance(rule, Rule) and rule.message_cel:
        validation |= {"message": rule.fallback} if rule.fallback else {}
        validation["messageExpression"] = rule.message_cel
    else:
        validation["message"] = rule.message
    if rule.field:
        validation["fieldPath"] = f".{rule.field}"
    if rule.reason != "FieldValueInvalid":
        validation["reason"] = rule.reason
    return validation


# --- the CustomResourceDefinition -----------------------------------------------------------------------

_HEADER: Final = """\
# Generated from src/fray/wire/ by `make crds`: change the models or rules there, not this file.
"""

_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": ".status.ready",
        "description": "Hosts of the current attempt that run, of all.",
    },
    {
        "name": "Attempt",
        "type": "integer",
        "jsonPath": ".status.attempt",
        "description": "Number of the current or last attempt.",
    },
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": ".status.reason",
        "description": "Why the job is in this phase.",
    },
    {
        "name": "Workers",
        "type": "integer",
        "jsonPath": ".status.workers.desired",
        "description": "Worker pods that there are to be.",
        "priority": 1,
    },
    {
        "name": "Workers-Ready",
        "type": "integer",
        "jsonPath": ".status.workers.ready",
        "description": "Worker pods that take tasks.",
        "priority": 1,
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


FRAYJOB: Final = CustomKind(
    kind=FRAYJOB_KIND,
    plural=FRAYJOB_PLURAL,
    short_name=FRAYJOB_SHORT_NAME,
    model=FrayJob,
    columns=_COLUMNS,
    scale={
        "specReplicasPath": ".spec.workers.replicas",
        "statusReplicasPath": ".status.workers.replicas",
        "labelSelectorPath": ".status.workers.selector",
    },
)


@cache
def build_schema(custom: CustomKind[Any]) -> dict[str, Any]:
    """Return the schema of a whole object as the API server has it. Don't change it: it is shared."""
    schema = structural_schema(custom.model)
    properties = schema["properties"]
    properties["apiVersion"] = {
        "type": "string",
        "description": f"Version of this kind of resource: {custom.group}/{custom.version}.",
    }
    properties["kind"] = {
        "type": "string",
        "description": f"Kind of the resource: {custom.kind}.",
    }
    # The API server owns metadata; of its fields only names may stand in a schema, here for a rule's path.
    properties["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
    }
    properties["status"] = _without_defaults(properties["status"])
    schema["required"] = ["spec"]
    return schema


def build_crd(custom: CustomKind[Any] = FRAYJOB) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{custom.plural}.{custom.group}"},
        "spec": {
            "group": custom.group,
            "scope": "Namespaced",
            "names": {
                "kind": custom.kind,
                "listKind": f"{custom.kind}List",
                "plural": custom.plural,
                "singular": custom.kind.lower(),
                "shortNames": [custom.short_name],
                "categories": ["all", "fray"],
            },
            "versions": [
                {
                    "name": custom.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [dict(column) for column in custom.columns],
                    "subresources": {"status": {}, **({"scale": dict(custom.scale)} if custom.scale else {})},
                    "schema": {"openAPIV3Schema": build_schema(custom)},
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full: anchors are no part of what people read in a CRD."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never refer back."""
        del data
        return True


def render_crd(crd: Mapping[str, Any]) -> str:
    """Return the YAML text of a CustomResourceDefinition; the same one gives the same text."""
    return _HEADER + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=108, allow_unicode=True)
