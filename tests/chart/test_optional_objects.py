"""Objects that an installation may have or not: disruption budget, network policy, metrics."""

from __future__ import annotations

import pytest

from tests.chart.rendering import find, kinds, operator_pod, render


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
