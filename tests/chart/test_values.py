"""values.yaml and its schema: they name the same values, and what can't work is refused with its place."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART, HelmRefusedError, render, render_text, run_helm
from tests.chart.value_tables import ACCEPTED, CONTRADICTIONS, REFUSED, Values

OF_OTHER_CHARTS = frozenset({"jobset"})
"""Helm puts all values of a chart that lies in this one where ours for it are."""
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

LINTED: list[Values] = [
    {},
    {"scope": "namespace"},
    {"networkPolicy": {"enabled": True, "metricsFrom": ["a"]}, "serviceMonitor": {"enabled": True}},
    {"rbac": {"create": False}, "crds": {"install": False}, "pdb": {"enabled": False}, "replicas": 1},
]


def nest(path: str, value: object) -> Values:
    """The values in which `path` has this value."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def merge(first: Values, second: Values) -> Values:
    """Both; where they differ, the second."""
    merged = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(first.get(key), dict)
        merged[key] = merge(first[key], value) if both else value
    return merged


def rounds(table: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every value of the table once, as many at a time as there are paths that don't overlap."""
    left = {path: list(values) for path, values in table.items()}
    while any(left.values()):
        chosen: dict[str, Any] = {}
        for path, values in left.items():
            if values and not any(f"{path}.".startswith(f"{other}.") for other in chosen):
                chosen[path] = values.pop()
        yield chosen


@pytest.mark.parametrize("bad", list(rounds(REFUSED)))
def test_every_value_that_can_not_work_is_refused_by_its_name(bad: dict[str, Any]) -> None:
    """Helm names all that is wrong at once: one run answers for many values."""
    refusal = refuse(*(nest(path, value) for path, value in bad.items()))
    for path, value in bad.items():
        parent, _, name = f"/{path.replace('.', '/')}".rpartition("/")
        # Helm forgets a default when it is told null, so the schema sees nothing there.
        place = f"at '{parent}': missing propert.*'{name}'" if value is None else f"at '{parent}/{name}"
        assert re.search(place, refusal), (path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path, good in ACCEPTED.items() for value in good],
    ids=lambda case: json.dumps(case)[:60],
)
def test_a_value_that_works_is_taken(path: str, value: object) -> None:
    everything: Values = {"networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    if (path, value) == ("metricsService.enabled", False):
        del everything["serviceMonitor"]
    assert "kind: Deployment" in render_text(merge(everything, nest(path, value)))


def refuse(*several: Values) -> str:
    """What helm says when it refuses these values together."""
    with pytest.raises(HelmRefusedError) as refusal:
        render_text(functools.reduce(merge, several))
    return str(refusal.value)


@pytest.mark.parametrize("table", [REFUSED, ACCEPTED], ids=["bad", "good"])
def test_every_value_is_tried(table: dict[str, list[Any]]) -> None:
    leaves = {path for path, value in _walk(VALUES, "") if not (isinstance(value, dict) and value)}
    assert not leaves - set(table)
    assert all(table.values())


@pytest.mark.parametrize(
    ("values", "expected"), CONTRADICTIONS, ids=[json.dumps(values) for values, _ in CONTRADICTIONS]
)
def test_values_that_contradict_each_other_are_refused(values: Values, expected: str) -> None:
    assert expected in refuse(values)


def test_a_name_that_does_not_exist_is_refused_in_every_object() -> None:
    objects = [path for path, value in _walk(VALUES, "") if isinstance(value, dict) and value]
    closed = ["", *(path for path in objects if path not in OF_OTHER_CHARTS)]
    refusal = refuse(*(nest(f"{path}.unknown".removeprefix("."), {}) for path in closed))
    for path in closed:
        place = f"/{path.replace('.', '/')}" if path else ""
        assert f"at '{place}': additional properties 'unknown' not allowed" in refusal


def test_null_is_refused_for_every_object_that_has_to_be_there() -> None:
    forgettable = {"resources", "resources.requests", "resources.limits", *OF_OTHER_CHARTS}
    objects = {path for path, value in _walk(VALUES, "") if isinstance(value, dict) and value} - forgettable
    for some in rounds({path: [None] for path in sorted(objects)}):
        refusal = refuse(*(nest(path, None) for path in some))
        for path in some:
            parent, _, name = f"/{path.replace('.', '/')}".rpartition("/")
            assert re.search(f"at '{parent}': missing propert.*'{name}'", refusal), path


def test_null_is_the_same_as_empty_where_a_default_is_empty() -> None:
    values: Values = {}
    for path, value in _walk(VALUES, ""):
        if value in ("", [], {}):
            values = merge(values, nest(path, None))
    assert values["podLabels"] is None
    assert render(values) == render()


@pytest.mark.parametrize("values", LINTED, ids=json.dumps)
def test_lint_finds_nothing(values: Values) -> None:
    said = run_helm("lint", str(CHART), "--strict", "--values=-", stdin=json.dumps(values))
    assert "0 chart(s) failed" in said


def test_lint_refuses_as_well() -> None:
    """Not what the templates find, though: helm lint only mentions that."""
    with pytest.raises(HelmRefusedError, match="at '/image': missing property 'repository'"):
        run_helm("lint", str(CHART), "--set=image.repository=null")


@pytest.mark.parametrize("version", ["1.31.0", "1.34.1-gke.1000000", "1.36.0"])
def test_versions_of_kubernetes_that_are_taken(version: str) -> None:
    assert "kind: Deployment" in run_helm("template", "fray", str(CHART), f"--kube-version={version}")


def test_an_older_kubernetes_is_refused() -> None:
    with pytest.raises(HelmRefusedError, match=r"chart requires kubeVersion: >=1\.31\.0-0"):
        run_helm("template", "fray", str(CHART), "--kube-version=1.30.9-gke.1000000")


def test_values_of_a_chart_above_are_accepted() -> None:
    assert render({"global": {"anything": 1}}) == render()


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    described = dict(_described(SCHEMA, ""))
    del described["global"]
    # What is passed on to Kubernetes has a shape there, but no values by default.
    known = {path for path in described if not path.startswith(("affinity.", "jobset.image.pullSecrets"))}
    assert known == {path for path, _ in _walk(VALUES, "") if not path.startswith("resources.")} | {
        "resources.requests",
        "resources.limits",
    }


def _described(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}{name}", child
        yield from _described(child, f"{path}{name}.")


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every value with its path, also those that hold others."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"{path}{name}", child
            yield from _walk(child, f"{path}{name}.")


def test_every_object_in_the_schema_refuses_unknown_names() -> None:
    open_objects = [
        path
        for path, child in [("", SCHEMA), *_described(SCHEMA, ""), *SCHEMA["definitions"].items()]
        if "properties" in child
        and child.get("additionalProperties") is not False
        and path not in OF_OTHER_CHARTS
    ]
    assert not open_objects


def test_versions_of_chart_and_packages_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
