"""Pages of docs/ that are generated are as the code is now, and leave nothing out."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray import errors
from fray.offered_names import WITHDRAWN
from fray.runtime.container import THREAD_LIMITS
from fray.runtime.identity import Identity
from fray.vocabulary import Reason
from fray.wire.schema import FRAYJOB, build_schema
from fray_operator.settings import OperatorSettings
from tools.generate_docs import ROOT, render_pages

PAGES = render_pages()
VARIABLE = re.compile(
    r"(FRAY|CUDA|JAX|LIBTPU|MEGASCALE|NCCL|PET|RAY|TPU|UV)_[A-Z_]+|[A-Z]+_(NUM|MAXIMUM)_THREADS"
)
SAME_AS = re.compile(r"\| [*`]+(?P<path>[^`]+)[*`]+ \|.*Its fields are those of `(?P<other>[^`]+)`")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_as_generated(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run `make docs`"


def test_every_variable_that_the_code_names_is_told_of() -> None:
    page = (ROOT / "docs" / "variables.md").read_text(encoding="utf-8")
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("src", "operator")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = {text for tree in trees for text in texts(tree) if VARIABLE.fullmatch(text)}
    named |= {text for tree in trees for text in names_of_environ(tree)}
    named -= {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    named -= WITHDRAWN.keys()
    # The operator makes these of its settings' names.
    named |= {f"FRAY_{each.name.upper()}" for each in dataclasses.fields(OperatorSettings)}
    named -= {"FRAY_KUBECONFIG", "FRAY_API_SERVER"}
    assert named > {*THREAD_LIMITS, "FRAY_RANK", "HOME", "RAY_JOB_STOP_WAIT_TIME_S", "TPU_VISIBLE_CHIPS"}
    assert {name for name in named if f"`{name}" not in page} == set()


def test_each_property_of_an_identity_is_told_of() -> None:
    page = (ROOT / "docs" / "variables.md").read_text(encoding="utf-8")
    section = page.partition("\n## Rank\n")[2].partition("\n## ")[0]
    names = {name for name in dir(Identity) if not name.startswith("_")}
    names |= {each.name for each in dataclasses.fields(Identity)}
    assert {name for name in names - {"from_env"} if f"me.{name}" not in section} == set()


def names_of_environ(tree: ast.Module) -> Iterator[str]:
    """Yield the texts by which a mapping is read whose name ends in `environ`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=mapping, slice=ast.Constant(value=str(name))):
                pass
            case ast.Call(func=ast.Attribute(value=mapping), args=[ast.Constant(value=str(name)), *_]):
                pass
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[mapping]):
                pass
            case _:
                continue
        if ast.unparse(mapping).endswith("environ") and name.isupper():
            yield name


def test_every_exit_code_is_a_constant_of_the_vocabulary_and_told_of() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    vocabulary = ROOT / "src" / "fray" / "vocabulary.py"
    codes = dict(exit_codes(vocabulary))
    assert len(codes) > 15
    assert {
        name for name, code in codes.items() if not re.search(rf"^\| {code}( \+ N)? \|", page, re.M)
    } == set()
    # Runs before anything can be imported; a test of its own holds its value true.
    alone = ROOT / "src" / "fray" / "runtime" / "start.py"
    sources = {*(ROOT / "src").rglob("*.py"), *(ROOT / "operator").rglob("*.py")} - {vocabulary, alone}
    assert [(path.name, name) for path in sources for name, _ in exit_codes(path)] == []


def exit_codes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names and values of a module's own constants for exit codes."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and "EXIT" in target.id.split("_"):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                yield target.id, value.value


def test_what_images_lack_is_told_by_reasons_and_errors_that_exist() -> None:
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    table = page.partition("## Images\n")[2].partition("\n\nAn init container")[0]
    told = {word for line in table.splitlines()[3:] for word in re.findall(r"`(\w+)`", line.split("|")[3])}
    assert len(told) > 8
    assert {word for word in told if not hasattr(errors, word) and word not in {*Reason}} == {
        "setup",
        "ModuleNotFoundError",
    }


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield all texts in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_field_of_a_frayjob_is_told_of() -> None:
    page = (ROOT / "docs" / "frayjob.md").read_text(encoding="utf-8")
    for part in ("spec", "status"):
        for name, schema in build_schema(FRAYJOB)["properties"][part]["properties"].items():
            section = page.partition(f"### {part}.{name}\n")[2].partition("\n### ")[0]
            same = {found["path"] for found in SAME_AS.finditer(section)}
            for path in fields(schema):
                told = section if path else page
                if not any(path.startswith((f"{each}.", f"{each}[].")) for each in same):
                    last = path.rpartition(".")[2] or name
                    assert f"`{path}`" in told or f"`{last}`" in told, f"{part}.{name}.{path}"


def fields(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all fields below a node, `""` for one that has none."""
    below = schema.get("items", schema).get("properties", {})
    if not below and not prefix:
        yield ""
    for name, child in below.items():
        path = f"{prefix}{name}"
        yield path
        yield from fields(child, f"{path}[]." if "items" in child else f"{path}.")
