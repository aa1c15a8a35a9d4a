"""docs/frayjob.md: every field of a FrayJob, from the schema that the API server has (`make docs`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fray.vocabulary import API_VERSION, FRAYJOB_KIND
from fray.wire.rules import IMMUTABLE
from fray.wire.schema import FRAYJOB, build_schema

Schema = dict[str, Any]

HEAD = """\
<!-- Generated from src/fray/wire/ by `make docs`: change the models or rules there, not this page. -->
# Fields of a FrayJob

Every field with its type, its default and the rules that the API server checks: a value that breaks \
one is refused at `kubectl apply` with the field and the legal values. `kubectl explain \
frayjob.spec` has the same texts. Fields in bold are required where their parent is set. What may \
change while a job lives is in [api.md](api.md).

A field that is a list is written with `[]`, so `env[].name` is the name of each variable. Quantities are \
written as `8`, `500m` or `32Gi`, durations as whole seconds.
"""
POD_FIELD = "as in core/v1."


IMMUTABLE_TEXT = "immutable"


def escape_cell(text: str) -> str:
    """Return a text as a cell of a Markdown table shows it."""
    return text.replace("|", "\\|").replace("<", "&lt;")


@dataclass
class Row:
    """One field: its path below its section, and the messages of rules that stand further up."""

    path: str
    schema: Schema
    required: bool
    rules: list[str] = field(default_factory=list)
    note: str = ""

    def __str__(self) -> str:
        name = f"**`{self.path}`**" if self.required else f"`{self.path}`"
        meaning = " ".join(filter(None, [self.schema.get("description", ""), self.note]))
        rules = "; ".join([*_bounds(self.schema), *self.rules])
        cells = (name, _kind(self.schema), _default(self.schema), rules or "-", meaning)
        return f"| {' | '.join(map(escape_cell, cells))} |"


def render_frayjob_page() -> str:
    """Return the page as the models and rules are now."""
    schema = build_schema(FRAYJOB)
    names = "; ".join(_rules_by_field(schema).get("metadata", []))
    parts = [f"{HEAD}\n`apiVersion` is `{API_VERSION}`, `kind` is `{FRAYJOB_KIND}`. `metadata`: {names}.\n"]
    for part, whose in (("spec", "What a user writes."), ("status", "What the operator writes.")):
        node = schema["properties"][part]
        seen: dict[str, str] = {}
        sections = {name: child for name, child in node["properties"].items() if _has_fields(child)}
        plain = {name: child for name, child in node["properties"].items() if name not in sections}
        own = _own_rules(node)
        intro = f"{whose} Rules: {'; '.join(own)}." if own else whose
        rules = _rules_by_field(node)
        rows = [Row(name, child, False, rules.get(name, [])) for name, child in plain.items()]
        for row in rows:
            row.rules += _own_rules(row.schema)
        parts.append(f"## {part}\n\n{intro}\n\n{_table(rows)}")
        for name, child in sections.items():
            intro = _intro(
                child, [*rules.get(name, []), *_own_rules(child)], required=name in node.get("required", [])
            )
            parts.append(f"### {part}.{name}\n\n{intro}\n\n{_section(child, seen, f'{part}.{name}')}")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _intro(schema: Schema, rules: list[str], *, required: bool) -> str:
    kind = "A list. " if schema.get("type") == "array" else ""
    told = "Required. " if required else ""
    bounds = _bounds(schema) + rules
    return f"{told}{kind}{schema.get('description', '')}" + (
        f" Rules: {'; '.join(bounds)}." if bounds else ""
    )


def _section(schema: Schema, seen: dict[str, str], path: str) -> str:
    rows = list(_rows(schema, "", path, seen))
    shown = [row for row in rows if not row.schema.get("description", "").endswith(POD_FIELD)]
    table = _table(shown)
    others = [row.path.rpartition(".")[2] for row in rows if row not in shown]
    if others:
        names = ", ".join(f"`{name}`" for name in others)
        table += f"\n\nFields of a pod's spec that an overlay may have, as core/v1 has them: {names}."
    return table


def _rows(schema: Schema, prefix: str, path: str, seen: dict[str, str]) -> Iterator[Row]:
    """Yield the fields below a node, each before its own."""
    owner = _owner(schema)
    rules = _rules_by_field(owner)
    for name, child in owner.get("properties", {}).items():
        own = f"{prefix}{name}"
        row = Row(own, child, name in owner.get("required", []), [*rules.get(name, []), *_own_rules(child)])
        if not _has_fields(child):
            yield row
            continue
        known = json.dumps(_owner(child)["properties"], sort_keys=True)
        if known in seen:
            row.note = f"Its fields are those of `{seen[known]}`."
            yield row
            continue
        seen[known] = f"{path}.{name}"
        yield row
        step = "[]" if child.get("type") == "array" else ""
        yield from _rows(child, f"{own}{step}.", f"{path}.{name}{step}", seen)


def _owner(schema: Schema) -> Schema:
    """Return the object that a node is, or that each of its items is."""
    return schema["items"] if schema.get("type") == "array" else schema


def _has_fields(schema: Schema) -> bool:
    return bool(_owner(schema).get("properties"))


def _table(rows: list[Row]) -> str:
    head = ["| field | type | default | rules | meaning |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(str, rows)])


def _kind(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if values := schema.get("additionalProperties"):
        return f"map of {values['type']}s"
    kind = schema.get("type", "any")
    if kind == "array" and not _has_fields(schema):
        return f"list of {schema['items']['type']}s"
    return "list" if kind == "array" else str(kind)


def _default(schema: Schema) -> str:
    if "default" not in schema or _has_fields(schema):
        return "-"
    return f"`{json.dumps(schema['default'])}`"


def _bounds(schema: Schema) -> list[str]:
    """Return in words what the schema alone requires of a value, and of each item of a list."""
    found = []
    if "enum" in schema:
        found.append(" or ".join(f"`{value}`" for value in schema["enum"]))
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        found.append(f"{least:,} to {most:,}")
    elif least is not None:
        found.append(f"at least {least:,}")
    sizes = (("Length", "characters"), ("Items", "items"), ("Properties", "entries"))
    for suffix, unit in sizes:
        if schema.get(f"min{suffix}", 0) > 0:
            found.append("not empty")
        if (limit := schema.get(f"max{suffix}")) is not None:
            found.append(f"at most {limit:,} {unit}")
    if "pattern" in schema:
        found.append(f"`{schema['pattern']}`")
    found += [f"each `{key}` once" for key in schema.get("x-kubernetes-list-map-keys", [])]
    each = schema.get("items") if not _has_fields(schema) else None
    each = each or schema.get("additionalProperties")
    return found + [f"each: {bound}" for bound in (_bounds(each) if each else ())]


def _own_rules(schema: Schema) -> list[str]:
    """Return the rules of a node, and of the items of a list, that are about no field of it."""
    nodes = (schema, schema.get("items", {}))
    return [text for node in nodes for rule, text in _messages(node) if "fieldPath" not in rule]


def _rules_by_field(schema: Schema) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rule, text in _messages(schema):
        if path := rule.get("fieldPath"):
            name, _, rest = path.removeprefix(".").partition(".")
            found.setdefault(name, []).append(f"`{rest}` {text}" if rest else text)
    return found


def _messages(schema: Schema) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the rules of a node with what the API server says, `...` for what depends on the value."""
    for rule in schema.get("x-kubernetes-validations", []):
        text = rule.get("message")
        if text is None:
            template = re.match(r"'((?:[^'\\]|\\.)*)'", rule["messageExpression"])
            assert template is not None, rule["messageExpression"]
            text = re.sub(r"%[sd]", "...", template[1].replace("\\", ""))
        elif "messageExpression" in rule:
            text = f"refused: {text}"
        yield rule, IMMUTABLE_TEXT if text == IMMUTABLE else text
