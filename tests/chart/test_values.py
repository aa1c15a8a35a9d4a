"""values.yaml and its schema: they name the same values, and what can't work is refused with its place."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART, HelmRefusedError, render, run_helm

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replcas": 3}, "'replcas' not allowed"),
    ({"image": {"name": "x"}}, "at '/image': additional properties 'name' not allowed"),
    (
        {"jobs": {"serviceAccount": {"labels": {}}}},
        "at '/jobs/serviceAccount': additional properties 'labels'",
    ),
    ({"scope": "both"}, "at '/scope': value must be one of 'cluster', 'namespace'"),
    ({"scope": ["default"]}, "at '/scope'"),
    ({"registry": "https://registry.example/x"}, "at '/registry'"),
    ({"image": {"repository": "https://registry.example/x"}}, "at '/image/repository'"),
    ({"image": {"repository": "registry.example/op:v1"}}, "at '/image/repository'"),
    ({"image": {"repository": ""}}, "at '/image/repository'"),
    ({"image": {"tag": "a b"}}, "at '/image/tag'"),
    ({"image": {"tag": 1.0}}, "at '/image/tag': got number, want string"),
    ({"image": {"digest": "sha256:123"}}, "at '/image/digest'"),
    ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy': value must be one of 'Always'"),
    ({"image": {"pullSecrets": [{"name": "x"}]}}, "at '/image/pullSecrets/0': got object, want string"),
    ({"runtimeImage": {"pullPolicy": "Never"}}, "at '/runtimeImage'"),
    ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    ({"replicas": "2"}, "at '/replicas': got string, want integer"),
    ({"leaseSeconds": 2}, "at '/leaseSeconds': minimum: got 2, want 6"),
    ({"backoff": {"seconds": 0}}, "at '/backoff/seconds'"),
    ({"backoff": {"seconds": 500}}, "backoff.capSeconds: must be at least backoff.seconds (500), it is 360"),
    ({"metadataServer": "yes"}, "at '/metadataServer': got string, want boolean"),
    ({"logLevel": "info"}, "at '/logLevel': value must be one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
    ({"httpPort": 80}, "at '/httpPort'"),
    ({"extraEnv": {"A": "b"}}, "at '/extraEnv': got object, want array"),
    ({"extraEnv": [{"name": "A", "value": 1}]}, "at '/extraEnv/0/value': got number, want string"),
    ({"extraEnv": [{"name": "FRAY_LOG_LEVEL", "value": "x"}]}, "extraEnv: set the value logLevel instead"),
    ({"extraEnv": [{"name": "FRAY_NAMESPACES", "value": "x"}]}, "extraEnv: set the value scope instead"),
    ({"extraEnv": [{"name": "FRAY_LEASE_NAME", "value": "x"}]}, "FRAY_LEASE_NAME is the chart's own"),
    ({"crds": {"install": "no"}}, "at '/crds/install'"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the existing account to use"),
    ({"serviceAccount": {"name": "Bad_Name"}}, "at '/serviceAccount/name'"),
    ({"jobs": {"namespaces": "default"}}, "at '/jobs/namespaces': got string, want array"),
    ({"jobs": {"namespaces": ["a.b"]}}, "at '/jobs/namespaces/0'"),
    ({"jobs": {"namespaces": ["a", "a"]}}, "at '/jobs/namespaces'"),
    (
        {"scope": "namespace", "jobs": {"namespaces": ["default"]}},
        "jobs.namespaces: with scope=namespace jobs run",
    ),
    ({"resources": {"limit": {}}}, "at '/resources': additional properties 'limit' not allowed"),
    ({"podLabels": {"a": True}}, "at '/podLabels/a': got boolean, want string"),
    ({"tolerations": [{"key": "a", "operator": "In"}]}, "at '/tolerations/0/operator'"),
    ({"affinity": {"nodeAffinty": {}}}, "at '/affinity': additional properties 'nodeAffinty' not allowed"),
    ({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}}, "at '/networkPolicy/apiServer/cidrs/0'"),
    ({"networkPolicy": {"apiServer": {"ports": []}}}, "at '/networkPolicy/apiServer/ports'"),
    ({"serviceMonitor": {"interval": 30}}, "at '/serviceMonitor/interval': got number, want string"),
    (
        {"serviceMonitor": {"enabled": True}, "metricsService": {"enabled": False}},
        "needs metricsService.enabled=true",
    ),
]

LINTED: list[dict[str, Any]] = [
    {},
    {"scope": "namespace"},
    {"networkPolicy": {"enabled": True, "metricsFrom": ["a"]}, "serviceMonitor": {"enabled": True}},
    {"rbac": {"create": False}, "crds": {"install": False}, "pdb": {"enabled": False}, "replicas": 1},
]


@pytest.mark.parametrize(("values", "expected"), REFUSED, ids=[json.dumps(values) for values, _ in REFUSED])
def test_values_that_can_not_work_are_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(HelmRefusedError) as refusal:
        render(values)
    assert expected in str(refusal.value)


@pytest.mark.parametrize("values", LINTED, ids=json.dumps)
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    said = run_helm("lint", str(CHART), "--strict", "--values=-", stdin=json.dumps(values))
    assert "0 chart(s) failed" in said


def test_values_of_a_chart_above_are_accepted() -> None:
    assert render({"global": {"anything": 1}}) == render()


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    described = dict(_described(SCHEMA, ""))
    del described["/global"]
    # What is passed on to Kubernetes has a shape there, but no values by default.
    passed_on = ("/affinity/", "/resources/claims")
    known = {path for path in described if not path.startswith(passed_on)}
    assert known == set(_paths(VALUES, ""))


def _described(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}/{name}", child
        yield from _described(child, f"{path}/{name}")


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict) and not path.startswith(("/resources/",)):
        for name, child in value.items():
            yield f"{path}/{name}"
            yield from _paths(child, f"{path}/{name}")


def test_every_object_in_the_schema_refuses_unknown_names() -> None:
    open_objects = [
        path
        for path, child in [("", SCHEMA), *_described(SCHEMA, "")]
        if "properties" in child and child.get("additionalProperties") is not False
    ]
    assert not open_objects


def test_versions_of_chart_and_packages_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
