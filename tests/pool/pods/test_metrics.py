"""The head's pages at the port of rank 0's pod, which a PodMonitor names."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from fray.runtime.pool.head.metrics import CONTENT_TYPE
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import METRICS_PORT, Attempt


def test_prometheus_reads_what_a_pool_does_at_the_port_of_the_head(attempt: Attempt) -> None:
    attempt.show_rank_0()
    attempt.start_head(FRAY_POOL_METRICS=str(METRICS_PORT))
    context = attempt.join()
    attempt.start_worker(1)
    assert context.get([context.run(abs, -number) for number in range(5)], timeout=PATIENCE) == [*range(5)]
    found: dict[tuple[str, str], float] = {}

    def has_ended() -> bool:
        """Read the page, which is made once a second."""
        with urllib.request.urlopen(f"http://{attempt.address(0)}:{METRICS_PORT}/metrics") as page:
            assert page.headers["Content-Type"] == CONTENT_TYPE
            text = page.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name, ",".join(sample.labels.values())] = sample.value
        return found["fray_pool_tasks_ended_total", "done"] == 5

    wait_until(has_ended)
    assert found["fray_pool_tasks_submitted_total", ""] == 5
    assert found["fray_pool_tasks_ended_total", "failed"] == 0
    assert found["fray_pool_hosts", ""] == 2
    assert found["fray_pool_workers", "joined"] >= 1
