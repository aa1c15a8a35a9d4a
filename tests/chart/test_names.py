"""Names of releases, namespaces and accounts, whatever they look like, reach the cluster as legal names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.chart.rendering import find, render
from tests.chart.value_tables import Values

LONGEST_RELEASE = "r" * 53
"""Helm takes no longer name for a release."""

LIKE_NUMBERS: Values = {
    "image": {"pullSecrets": ["1"]},
    "runtimeImage": {"repository": "2", "tag": "3"},
    "serviceAccount": {"name": "4"},
    "jobs": {"namespaces": ["5", "null"], "serviceAccount": {"name": "6"}},
    "priorityClassName": "true",
    "podLabels": {"7": "8"},
    "podAnnotations": {"9": "0x10"},
    "nodeSelector": {"pool": "11"},
    "networkPolicy": {"enabled": True, "metricsFrom": ["12"], "apiServer": {"cidrs": ["::/0"]}},
    "serviceMonitor": {"enabled": True, "labels": {"a": "13"}},
    "podMonitor": {"enabled": True, "labels": {"a": "14"}},
}

STRINGS = ("/name", "/namespace", "/serviceAccountName", "/priorityClassName", "/cidr", "/image", "/interval")


def scalars(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Everything in an object that holds nothing itself, with its path."""
    if isinstance(value, dict):
        for key, child in value.items():
            assert isinstance(key, str), f"{path}/{key}"
            yield from scalars(child, f"{path}/{key}")
    elif isinstance(value, list):
        for child in value:
            yield from scalars(child, f"{path}/-")
    else:
        yield path, value


@pytest.mark.parametrize("values", [LIKE_NUMBERS, {"scope": "namespace"}], ids=["cluster", "namespace"])
def test_what_looks_like_a_number_stays_text(values: Values) -> None:
    for rendered in render(values, release="14", namespace="15"):
        if rendered["kind"] == "CustomResourceDefinition":
            continue
        for path, value in scalars(rendered):
            in_map = re.search(r"/(labels|annotations|matchLabels|nodeSelector|selector|matchNames)/", path)
            if path.endswith(STRINGS) or in_map or path.endswith("/values/-"):
                assert isinstance(value, str), (rendered["kind"], path, value)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("fray", "fray-operator-metrics"),
        ("team.fray", "team-fray-operator-metrics"),
        ("7up", "fray-7up-operator-metrics"),
        (f"{'r' * 45}-rrrrrrr", f"{'r' * 45}-operator-metrics"),
        (LONGEST_RELEASE, f"{'r' * 46}-operator-metrics"),
    ],
)
def test_the_service_of_metrics_has_a_legal_name_for_every_release(release: str, expected: str) -> None:
    name = find(render(release=release), "Service")["metadata"]["name"]
    assert name == expected
    # A Service's name is a label of DNS that begins with a letter (RFC 1035).
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_no_label_is_too_long() -> None:
    for rendered in render(release=LONGEST_RELEASE):
        assert all(len(value) <= 63 for value in rendered["metadata"].get("labels", {}).values())


def test_labels_of_pods_never_touch_what_finds_them() -> None:
    plain, labelled = render(), render({"podLabels": {"name": "x", "example.com/name": "y", "app": "z"}})
    for kind in ("Deployment", "PodDisruptionBudget", "Service"):
        assert find(labelled, kind)["spec"]["selector"] == find(plain, kind)["spec"]["selector"]
    pod = find(labelled, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selector = find(labelled, "Deployment")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= pod.items()
    assert pod["example.com/name"] == "y"
