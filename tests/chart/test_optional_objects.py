"""Objects that an installation may have or not: disruption budget, network policy, metrics."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import (
    LABEL_COMPLETION_INDEX,
    LABEL_JOB_INDEX,
    POOL_METRICS_PATH,
    POOL_METRICS_PORT_NAME,
)
from fray_operator.metrics import Metrics
from tests.chart.rendering import find, kinds, operator_pod, render
from tests.chart.value_tables import GKE, Values
from tests.unit.plan.jobset_rules import pod_template


def test_default_installation_has_exactly_these_kinds() -> None:
    assert kinds(render()) == {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    }


def test_at_most_one_replica_is_taken_away_at_a_time() -> None:
    objects = render()
    budget = find(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= operator_pod(objects)["metadata"]["labels"].items()


@pytest.mark.parametrize("values", [{"replicas": 1}, {"pdb": {"enabled": False}}])
def test_no_disruption_budget_where_it_could_only_block_drains(values: dict[str, object]) -> None:
    assert "PodDisruptionBudget" not in kinds(render(values))


def test_network_policy_lets_names_the_api_server_and_metrics_through() -> None:
    objects = render({"networkPolicy": {"enabled": True, "metricsFrom": ["monitoring", "ops"]}})
    policy = find(objects, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= operator_pod(objects)["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring", "ops"]}
    assert policy["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchExpressions": [names]}}],
            "ports": [{"port": "http", "protocol": "TCP"}],
        }
    ]
    assert policy["egress"] == [
        {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
        {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]},
    ]


def test_network_policy_admits_nobody_by_default_and_can_name_the_api_server() -> None:
    reachable = {"cidrs": ["172.16.0.2/32", "fd00::1/128"], "ports": [443]}
    policy = find(render({"networkPolicy": {"enabled": True, "apiServer": reachable}}), "NetworkPolicy")[
        "spec"
    ]
    assert policy["ingress"] == []
    assert policy["egress"][1] == {
        "ports": [{"port": 443, "protocol": "TCP"}],
        "to": [{"ipBlock": {"cidr": "172.16.0.2/32"}}, {"ipBlock": {"cidr": "fd00::1/128"}}],
    }


def test_network_policy_lets_gke_through_where_the_operator_asks_it_for_node_pools() -> None:
    values = {"networkPolicy": {"enabled": True, "apiServer": {"cidrs": ["172.16.0.2/32"]}}, "nodePools": GKE}
    policy = find(render(values), "NetworkPolicy")["spec"]
    assert policy["egress"][2:] == [
        {"ports": [{"port": 443, "protocol": "TCP"}]},
        {
            "ports": [{"port": 80, "protocol": "TCP"}, {"port": 988, "protocol": "TCP"}],
            "to": [{"ipBlock": {"cidr": "169.254.169.252/30"}}],
        },
    ]


def test_metrics_service_finds_the_operators_pods_and_port() -> None:
    objects = render({"httpPort": 9090, "metricsService": {"annotations": {"a": "b"}}})
    service = find(objects, "Service")
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert service["spec"]["selector"].items() <= operator_pod(objects)["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("http", 9090, "http")
    assert "Service" not in kinds(render({"metricsService": {"enabled": False}}))


def test_service_monitor_selects_the_metrics_service_only() -> None:
    objects = render(
        {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"}}
    )
    monitor, service = find(objects, "ServiceMonitor"), find(objects, "Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["fray-system"]}
    assert monitor["spec"]["endpoints"] == [
        {"port": service["spec"]["ports"][0]["name"], "path": "/metrics", "interval": "1m"}
    ]


POOLS: Values = {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}}


def test_pod_monitor_selects_the_heads_of_pools_only() -> None:
    monitor = find(render(POOLS), "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": POOL_METRICS_PORT_NAME, "path": POOL_METRICS_PATH, "interval": "15s"}
    job = build_frayjob(workers={"replicas": 1}, replicas=2)
    jobset = build_attempt(job, attempt=1, settings=PlanSettings()).jobset
    labels = pod_template(jobset)["metadata"]["labels"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    # The two that the plan doesn't set come from JobSet and from the Job controller, for each pod.
    assert wanted.items() - labels.items() == {(LABEL_JOB_INDEX, "0"), (LABEL_COMPLETION_INDEX, "0")}
    assert set(monitor["spec"]["podTargetLabels"]) <= labels.keys()
    assert "PodMonitor" not in kinds(render())


@pytest.mark.parametrize(
    ("scope", "selected"),
    [
        ({}, {"any": True}),
        ({"scope": "namespace", "namespaces": ["a", "5"]}, {"matchNames": ["a", "5"]}),
        ({"scope": "namespace"}, {"matchNames": ["fray-system"]}),
    ],
)
def test_pod_monitor_finds_pools_in_all_namespaces_that_are_served(
    scope: Values, selected: dict[str, Any]
) -> None:
    monitor = find(render({**POOLS, **scope}), "PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == selected


# --- alerts and the dashboard ---------------------------------------------------------------------------


def series() -> set[str]:
    """The names of all series that the operator can have."""
    samples = {sample.name for metric in Metrics().registry.collect() for sample in metric.samples}
    # Of a metric with labels there is no sample before its first use.
    counters = {f"{metric.name}_total" for metric in Metrics().registry.collect() if metric.type == "counter"}
    return samples | counters | {metric.name for metric in Metrics().registry.collect()}


def named_series(expression: str) -> set[str]:
    return set(re.findall(r"fray_[a-z_]+", re.sub(r'"[^"]*"', '""', expression)))


def test_alerts_are_about_metrics_that_the_operator_of_this_release_has() -> None:
    objects = render({"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}})
    rule, service = find(objects, "PrometheusRule"), find(objects, "Service")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    names = [alert["alert"] for alert in group["rules"]]
    assert len(names) == len(set(names)) == 4
    for alert in group["rules"]:
        assert named_series(alert["expr"]) <= series()
        selectors = re.findall(r"fray_[a-z_]+\{(.*?)\}", alert["expr"])
        assert selectors
        for selector in selectors:
            labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', selector))
            assert labels["namespace"] == "fray-system"
            assert labels["service"] == service["metadata"]["name"]
        assert alert["expr"].count("{") == alert["expr"].count("}")
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert alert["annotations"].keys() == {"summary", "description"}


def test_nobody_who_leads_is_an_alert_also_when_there_is_no_operator_at_all() -> None:
    rule = find(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    (alert,) = (each for each in rule["spec"]["groups"][0]["rules"] if each["alert"] == "FrayNobodyLeads")
    assert "or vector(0)" in alert["expr"]


def test_the_dashboard_shows_every_metric_and_none_that_does_not_exist() -> None:
    found = find(render({"dashboard": {"enabled": True}}), "ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = found["data"].values()
    board = json.loads(text)
    shown = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert named_series(target["expr"]) <= series() | {"fray_reconcile_seconds_bucket"}
            shown |= named_series(target["expr"])
    metrics = {metric.name for metric in Metrics().registry.collect()}
    assert {name.removesuffix("_total").removesuffix("_bucket") for name in shown} == metrics
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
