"""What measurements of scale read in metrics: requests, writes, and whether an operator has seen all jobs."""

from __future__ import annotations

import dataclasses

import pytest

from e2e.scale.counters import (
    Counters,
    Progress,
    parse_progress,
    parse_requests,
    parse_server_writes,
)

OPERATOR = """\
# HELP fray_api_requests_total Requests to the API server
# TYPE fray_api_requests_total counter
fray_api_requests_total{method="GET",resource="pods",status="2xx"} 11.0
fray_api_requests_total{method="PUT",resource="frayjobs.fray.dev",status="409"} 2.0
fray_api_requests_total{method="PUT",resource="leases.coordination.k8s.io",status="2xx"} 5.0
fray_api_requests_total{method="WATCH",resource="pods",status="2xx"} 1.0
fray_reconciles_total{kind="FrayJob",outcome="done"} 7.0
fray_reconciles_total{kind="FrayJob",outcome="conflict"} 1.0
fray_reconciles_total{kind="Other",outcome="conflict"} 1.0
fray_unfinished_objects{kind="FrayJob"} 8.0
fray_queued_objects{kind="FrayJob"} 3.0
fray_leading 1.0
"""
SERVER = """\
apiserver_request_total{code="200",component="apiserver",dry_run="",group="fray.dev",resource="frayjobs",\
scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 4
apiserver_request_total{code="409",component="apiserver",dry_run="",group="fray.dev",resource="frayjobs",\
scope="resource",subresource="status",verb="PUT",version="v1alpha1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="jobset.x-k8s.io",resource="jobsets",\
scope="resource",subresource="",verb="DELETE",version="v1alpha2"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="fray.dev",resource="frayjobs",\
scope="cluster",subresource="",verb="LIST",version="v1alpha1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",\
scope="resource",subresource="",verb="PATCH",version="v1"} 6
apiserver_request_terminations_total{group="fray.dev",verb="PUT",resource="frayjobs",subresource=""} 3
"""

DONE = Progress(leading=True, unfinished=3, queued=0, passes={"done": 2, "conflict": 1})


def test_requests_are_counted_by_method_resource_and_status() -> None:
    assert parse_requests(OPERATOR) == {
        "GET pods 2xx": 11,
        "PUT frayjobs.fray.dev 409": 2,
        "PUT leases.coordination.k8s.io 2xx": 5,
        "WATCH pods 2xx": 1,
    }


def test_writes_are_all_that_isnt_read_but_for_the_lease() -> None:
    counters = Counters(rss_mib=1, peak_rss_mib=1, cpu_seconds=1, requests=parse_requests(OPERATOR))
    assert counters.writes == {"PUT frayjobs.fray.dev 409": 2}


def test_progress_is_read_from_an_operators_metrics() -> None:
    assert parse_progress(OPERATOR) == Progress(
        leading=True, unfinished=8, queued=3, passes={"done": 7, "conflict": 2}
    )
    assert parse_progress("") == Progress(leading=False, unfinished=0, queued=0, passes={})


def test_the_server_counts_writes_to_frayjobs_and_jobsets_whatever_came_of_them() -> None:
    assert parse_server_writes(SERVER) == {"PUT frayjobs/status": 5, "DELETE jobsets": 2}


def test_all_jobs_were_seen_once_each_has_had_a_pass_and_none_is_due() -> None:
    assert DONE.has_seen_all(3)


@pytest.mark.parametrize(
    "not_yet",
    [
        dataclasses.replace(DONE, leading=False),
        dataclasses.replace(DONE, unfinished=2),
        dataclasses.replace(DONE, queued=1),
        dataclasses.replace(DONE, passes={"done": 2}),
    ],
    ids=["standby", "doesn't know all", "some are due", "too few passes"],
)
def test_all_jobs_were_not_seen_before(not_yet: Progress) -> None:
    assert not not_yet.has_seen_all(3)
