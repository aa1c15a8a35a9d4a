"""Logs: every line once, in order, whatever is in it, while the job runs and afterwards."""

from __future__ import annotations

import logging
import sys

import pytest

from fray.cluster import Cluster, ResourceConfig
from tests.conformance.jobs import PATIENCE, launch, read_until, shell, stay, texts, until

LINES = 2_000


def count_up(count: int) -> None:
    for number in range(count):
        print(f"line {number}")


ODD = ["Zürich 東京 🚀", "", "tab\tand \x1b[31mcolour\x1b[0m", "x" * 300_000, "no newline at the end"]


def print_oddly() -> None:
    sys.stdout.write("\n".join(ODD))


def print_to_both_streams() -> None:
    for number in range(10):
        print(f"out {number}", flush=True)
        print(f"error {number}", file=sys.stderr, flush=True)


@pytest.mark.parametrize("follow", [False, True])
def test_two_thousand_lines(cluster: Cluster, name: str, follow: bool) -> None:
    job = launch(cluster, name, count_up, LINES)
    expected = [f"line {number}" for number in range(LINES)]
    if not follow:
        cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    lines = list(cluster.logs(job, follow=follow))
    assert [line.text for line in lines] == expected
    assert {(line.job_id, line.attempt, line.rank, line.gap) for line in lines} == {(job, 1, 0, False)}
    assert str(lines[0]) == "[0/0 1] line 0"
    times = [line.at for line in lines if line.at is not None]
    assert times == sorted(times)
    assert texts(cluster.logs(job)) == expected


def test_odd_lines(cluster: Cluster, name: str) -> None:
    # On one stream: containerd takes a long line in parts, and the kubelet joins parts, and what has no
    # newline, with whatever the other stream says next (pkg/cri/io/logger.go of containerd 1.7).
    job = launch(cluster, name, print_oddly)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert texts(cluster.logs(job)) == ODD


def test_both_streams(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, print_to_both_streams)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    lines = texts(cluster.logs(job))
    for stream in ("out", "error"):
        assert [line for line in lines if stream in line] == [f"{stream} {number}" for number in range(10)]
    assert len(lines) == 20


def test_bytes_that_are_no_text(cluster: Cluster, name: str) -> None:
    job = shell(cluster, name, r"printf 'a\377b\n\303\274\n'")
    cluster.wait(job, timeout=PATIENCE)
    assert texts(cluster.logs(job)) == ["a\N{REPLACEMENT CHARACTER}b", "ü"]


def test_of_a_progress_bar_the_last_state_is_kept(
    cluster: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = r"printf 'loading\r\n'; for n in 1 2 3; do printf '\r%d%%' $n; done; printf '\nover\n'"
    job = shell(cluster, name, script)
    with caplog.at_level(logging.INFO, logger="fray.cluster.base"):
        assert list(cluster.monitor(job)) == ["[0/0 1] loading", "[0/0 1] 3%", "[0/0 1] over"]
    assert texts(cluster.logs(job)) == ["loading", "3%", "over"]


def test_lines_come_while_the_job_runs(cluster: Cluster, name: str) -> None:
    job = launch(cluster, name, stay)
    read_until(cluster, job, "ready")
    until(lambda: cluster.poll(job).status == "running")
    assert texts(cluster.logs(job)) == ["ready"]
    cluster.terminate(job)
    cluster.wait(job, timeout=PATIENCE)


def test_one_rank(cluster: Cluster, name: str) -> None:
    script = 'echo "$FRAY_HOST$FRAY_SLICE"; echo again'
    job = shell(cluster, name, script, resources=ResourceConfig(replicas=3))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    lines = list(cluster.logs(job, rank=2))
    assert [line.rank for line in lines] == [2, 2]
    assert lines[1].text == "again"
    assert sorted(line.rank for line in cluster.logs(job)) == [0, 0, 1, 1, 2, 2]


def test_monitor_logs_and_returns_the_lines(
    cluster: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = shell(cluster, name, "echo one; echo two; exit 5")
    with caplog.at_level(logging.INFO, logger="fray.cluster.base"):
        info = cluster.monitor(job)
    assert list(info) == ["[0/0 1] one", "[0/0 1] two"]
    assert [record.getMessage() for record in caplog.records] == list(info)
    assert info.status == "failed"
    assert info.error_message == cluster.poll(job).error_message
