"""The operator's metrics: their labels can't grow with the number of jobs, pods or answers."""

from __future__ import annotations

from fray.kube.resources import FRAYJOBS, PODS
from fray_operator.metrics import Metrics


def test_requests_are_counted_by_classes_of_answers_and_by_those_that_tell_something() -> None:
    metrics = Metrics()
    for status in range(600):
        if status == 0 or status >= 100:
            metrics.count_request("GET", PODS, status)
    samples = [
        s for m in metrics.registry.collect() for s in m.samples if s.name == "fray_api_requests_total"
    ]
    counted = {sample.labels["status"]: sample.value for sample in samples}
    assert set(counted) == {"0", "1xx", "2xx", "3xx", "404", "409", "410", "429", "4xx", "5xx"}
    assert counted["404"] == 1
    assert counted["4xx"] == 96
    assert sum(counted.values()) == 501


def test_no_label_can_name_a_job() -> None:
    metrics = Metrics()
    metrics.count_request("PUT", FRAYJOBS, 200)
    labels = {label for metric in metrics.registry.collect() for s in metric.samples for label in s.labels}
    assert labels <= {"method", "resource", "status", "kind", "outcome", "phase", "verdict", "le"}


def test_they_are_rendered_as_prometheus_reads_them_without_a_second_series_for_each_counter() -> None:
    metrics = Metrics()
    metrics.count_request("PUT", FRAYJOBS, 409)
    text = metrics.render().decode()
    assert 'fray_api_requests_total{method="PUT",resource="frayjobs.fray.dev",status="409"} 1.0' in text
    assert "_created" not in text


def test_each_process_has_metrics_of_its_own() -> None:
    first, second = Metrics(), Metrics()
    first.leading.set(1)
    assert second.registry.get_sample_value("fray_leading") == 0
