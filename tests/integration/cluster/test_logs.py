"""Logs of a job's pods: each line once, none lost while its pod exists, and a gap is told."""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import JobNotFoundError, LogsNotFoundError
from fray.types import JobId, LogLine, ResourceConfig
from fray.vocabulary import LABEL_ATTEMPT, LABEL_COMPLETION_INDEX, LABEL_JOB, LABEL_JOB_UID
from tests.integration.cluster.fake_kubelet import FakeKubelet
from tests.integration.cluster.jobs import Background, command, finish, set_status
from tests.integration.controller.hands import Hands, eventually, now
from tests.integration.frayjobs import FrayJobs

_numbers = itertools.count(1)


@pytest.fixture
def kubelet(api: Api, tmp_path: Path) -> Iterator[FakeKubelet]:
    with FakeKubelet(api, f"node-{next(_numbers)}", tmp_path) as running:
        yield running


class Gang:
    """The pods of a job, as its controllers would make them."""

    def __init__(self, frayjobs: FrayJobs, kubelet: FakeKubelet, job: JobId) -> None:
        self._hands, self._kubelet, self._frayjobs = (
            Hands(frayjobs.api, frayjobs.namespace),
            kubelet,
            frayjobs,
        )
        self.job = job
        self._uid = frayjobs.api.get(frayjobs.path(job)).body["metadata"]["uid"]
        self._pods: dict[str, Any] = {}

    def start(self, *, attempt: int = 1, hosts: int = 1) -> list[str]:
        """Start an attempt's pods; return their names by rank."""
        status = {"attempts": [{"number": number} for number in range(1, attempt + 1)]}
        set_status(self._frayjobs, self.job, status)
        names = [f"{self.job}-a{attempt}-{rank}" for rank in range(hosts)]
        for rank, name in enumerate(names):
            labels = {
                LABEL_JOB: self.job,
                LABEL_JOB_UID: self._uid,
                LABEL_ATTEMPT: str(attempt),
                LABEL_COMPLETION_INDEX: str(rank),
            }
            spec = {"containers": [{"name": "main", "image": "image"}]}
            core = f"/api/v1/namespaces/{self._frayjobs.namespace}/pods"
            created = self._frayjobs.api.post(
                core, {"metadata": {"name": name, "labels": labels}, "spec": spec}
            )
            assert created.ok, created.body
            self._pods[name] = created.body
            self._hands.bind(created.body, self._kubelet.node)
            self._hands.run(created.body)
        return names

    def end(self, *names: str) -> None:
        for name in names:
            self._kubelet.write(name, ended=True)
            self.tell_end(name)

    def tell_end(self, name: str) -> None:
        self._hands.exit(self._pods[name], 0)

    def delete(self, name: str) -> None:
        self._hands.delete_pod(self._pods[name])


@pytest.fixture
def gang(cluster: KubernetesCluster, frayjobs: FrayJobs, kubelet: FakeKubelet) -> Gang:
    job = cluster.launch(command(resources=ResourceConfig(replicas=3)))
    return Gang(frayjobs, kubelet, job)


def texts(lines: list[LogLine]) -> list[str]:
    return [str(line) for line in lines]


def test_lines_of_all_ranks_come_in_the_order_of_their_times(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet
) -> None:
    first, second, silent = gang.start(hosts=3)
    kubelet.write(first, "a", "b", at=0)
    kubelet.write(second, "c", b"d\xff", "Zürich 東京", at=0.5)
    kubelet.write(first, "x" * 300_000, at=1)
    gang.end(first, second, silent)
    lines = list(cluster.logs(gang.job))
    assert texts(lines)[:5] == [
        "[0/0 1] a",
        "[0/0 1] b",
        "[0/1 1] c",
        "[0/1 1] d\N{REPLACEMENT CHARACTER}",
        "[0/1 1] Zürich 東京",
    ]
    assert len(lines[5].text) == 300_000
    assert [line.rank for line in lines] == [0, 0, 1, 1, 1, 0]
    assert texts(list(cluster.logs(gang.job, rank=1))) == texts(lines)[2:5]


def test_attempts_come_one_after_the_other_or_alone(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet
) -> None:
    for attempt in (1, 2):
        (pod,) = gang.start(attempt=attempt)
        kubelet.write(pod, f"attempt {attempt}", at=10 - attempt)
        gang.end(pod)
    assert texts(list(cluster.logs(gang.job))) == ["[0/0 1] attempt 1", "[0/0 2] attempt 2"]
    assert texts(list(cluster.logs(gang.job, attempt=2))) == ["[0/0 2] attempt 2"]


def test_what_is_not_there_is_told_with_what_is(cluster: KubernetesCluster, gang: Gang) -> None:
    gang.start()
    with pytest.raises(LogsNotFoundError, match=r"no rank 3(.|\n)*There are: 0, 1, 2"):
        cluster.logs(gang.job, rank=3)
    with pytest.raises(LogsNotFoundError, match=r"attempt 2(.|\n)*There are: 1\."):
        cluster.logs(gang.job, attempt=2)
    with pytest.raises(JobNotFoundError):
        cluster.logs(JobId("none"))


def test_following_goes_on_through_cuts_and_restarts_to_the_end(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs
) -> None:
    found: list[LogLine] = []
    following = Background(lambda: found.extend(cluster.logs(gang.job, follow=True)))
    numbers = [f"line {number}" for number in range(2000)]
    first, second = gang.start(hosts=2)
    for begin in range(0, 2000, 500):
        kubelet.write(first, *numbers[begin : begin + 500], at=begin / 500)
        kubelet.write(second, "same", "same", at=begin / 500)
        eventually(lambda begin=begin: sum(line.rank == 0 for line in found) == begin + 500)  # type: ignore[misc]
        asked = kubelet.streams_of(first)
        kubelet.cut()
        eventually(lambda asked=asked: kubelet.streams_of(first) > asked)  # type: ignore[misc]
    gang.end(first, second)
    (third,) = gang.start(attempt=2)
    kubelet.write(third, "again", at=100)
    gang.end(third)
    finish(frayjobs, gang.job)
    following.result()
    assert [line.text for line in found if line.rank == 0 and line.attempt == 1] == numbers
    assert [line.text for line in found if line.rank == 1] == ["same"] * 8
    assert texts(found)[-1] == "[0/0 2] again"
    assert not any(line.gap for line in found)


@pytest.mark.parametrize("follow", [False, True])
def test_hosts_whose_pods_went_before_they_were_read_leave_gaps(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs, follow: bool
) -> None:
    """With an attempt JobSet removes the pods that still run; with a job that is stopped all of them go."""
    _, kept, _ = gang.start(hosts=3)
    kubelet.write(kept, "kept")
    gang.end(kept)
    for rank in (0, 2):
        gang.delete(f"{gang.job}-a1-{rank}")
    ended = {"startTime": now(), "runningTime": now(), "verdict": "Failure"}
    unbegun = {"number": 2, "startTime": now(), "verdict": "Failure"}
    set_status(
        frayjobs,
        gang.job,
        {"attempts": [{"number": 1, **ended}, unbegun, {"number": 3, **ended, "verdict": "Stopped"}]},
    )
    finish(frayjobs, gang.job, "Stopped")

    def read(**options: Any) -> list[tuple[bool, int, int, str]]:
        lines = list(cluster.logs(gang.job, follow=follow, **options))
        return sorted((line.gap, line.attempt, line.rank, line.text) for line in lines)

    one, all_of_3 = (
        "lines are missing: its pod is gone, and with it what it printed",
        "lines are missing: the pods of attempt 3 are gone, and their lines with them",
    )
    assert read() == [
        (False, 1, 1, "kept"),
        (True, 1, 0, one),
        (True, 1, 2, one),
        (True, 3, 0, all_of_3),
    ]
    assert read(rank=1) == [(False, 1, 1, "kept"), (True, 3, 1, one)]
    assert read(attempt=1, rank=2) == [(True, 1, 2, one)]


def test_a_log_that_was_rotated_while_it_was_read_has_a_gap(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs
) -> None:
    found: list[LogLine] = []
    following = Background(lambda: found.extend(cluster.logs(gang.job, follow=True)))
    (pod,) = gang.start()
    kubelet.write(pod, "one", at=0)
    eventually(lambda: found)
    kubelet.rotate(pod)
    kubelet.cut()
    kubelet.write(pod, "nine", at=9)
    gang.end(pod)
    finish(frayjobs, gang.job)
    following.result()
    assert [(line.gap, line.text[:17]) for line in found] == [
        (False, "one"),
        (True, "lines are missing"),
        (False, "nine"),
    ]


@pytest.mark.parametrize("follow", [False, True])
def test_a_kubelet_that_does_not_know_its_pods_yet_is_asked_again(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs, follow: bool
) -> None:
    (pod,) = gang.start()
    kubelet.write(pod, "one", "two")
    kubelet.knows_pods = False
    reading = Background(lambda: list(cluster.logs(gang.job, follow=follow)))
    eventually(lambda: kubelet.streams_of(pod) > 1)
    kubelet.knows_pods = True
    if follow:
        gang.end(pod)
        finish(frayjobs, gang.job)
    assert [(line.gap, line.text) for line in reading.result()] == [(False, "one"), (False, "two")]


def test_a_pod_that_is_gone_leaves_a_gap(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs
) -> None:
    found: list[LogLine] = []
    following = Background(lambda: found.extend(cluster.logs(gang.job, follow=True)))
    (pod,) = gang.start()
    kubelet.write(pod, "one", at=0)
    eventually(lambda: found)
    gang.delete(pod)
    kubelet.cut()
    finish(frayjobs, gang.job)
    following.result()
    assert [line.gap for line in found] == [False, True]
    assert "its pod is gone" in found[1].text


def test_a_pod_that_ended_before_it_went_leaves_none(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs
) -> None:
    found: list[LogLine] = []
    following = Background(lambda: found.extend(cluster.logs(gang.job, follow=True)))
    (pod,) = gang.start()
    kubelet.write(pod, "one", at=0)
    eventually(lambda: found)
    gang.tell_end(pod)
    gang.delete(pod)
    kubelet.write(pod, "two", at=1, ended=True)
    finish(frayjobs, gang.job)
    following.result()
    assert [(line.gap, line.text) for line in found] == [(False, "one"), (False, "two")]


def test_an_undisturbed_log_is_read_once(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet, frayjobs: FrayJobs
) -> None:
    (pod,) = gang.start()
    kubelet.write(pod, *(f"early {number}" for number in range(100)), at=0)
    kubelet.write(pod, "late", at=60)
    gang.end(pod)
    finish(frayjobs, gang.job)
    assert len(list(cluster.logs(gang.job, follow=True))) == 101
    # Then the last line, once more: whether it is the one that was read last.
    assert [query.get("tailLines") for _, query in kubelet.requests] == [None, "1"]
    assert kubelet.sent_bytes[pod] == kubelet.size_of(pod) + kubelet.size_of(pod, last=1)


READER = """
import json, re, sys, zlib
from collections import Counter
from pathlib import Path
from fray.cluster import current_cluster

def memory(kind):
    return int(re.search(kind + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

cluster = current_cluster()
cluster.poll(sys.argv[1])
before = memory("VmRSS")
lines, sums = Counter(), Counter()
for line in cluster.logs(sys.argv[1], follow=True):
    assert not line.gap, line
    lines[line.rank] += 1
    sums[line.rank] = zlib.crc32(line.text.encode(), sums[line.rank])
print(json.dumps({"lines": lines, "sums": sums, "mib": memory("VmHWM") - before}))
"""
MOST_MIB = 24
"""What reading may take beside the client itself, which takes 62; it was seen to take 17."""


def test_a_client_of_16_pods_stays_small_and_reads_each_byte_once(
    cluster: KubernetesCluster, frayjobs: FrayJobs, kubelet: FakeKubelet, control_plane: ControlPlane
) -> None:
    gang = Gang(frayjobs, kubelet, cluster.launch(command(resources=ResourceConfig(replicas=16))))
    pods = gang.start(hosts=16)
    texts = [f"step {number} " + "x" * 400 for number in range(5_000)]
    for pod in pods:
        kubelet.write(pod, *texts)
    gang.end(*pods)
    finish(frayjobs, gang.job)
    environ = {
        **os.environ,
        "KUBECONFIG": str(control_plane.kubeconfig),
        "FRAY_CLUSTER_SPEC": f"k8s?namespace={frayjobs.namespace}",
    }
    told = subprocess.run(
        [sys.executable, "-c", READER, gang.job], env=environ, stdout=subprocess.PIPE, check=True
    )
    found = json.loads(told.stdout)
    assert found["lines"] == {str(rank): len(texts) for rank in range(16)}
    assert set(found["sums"].values()) == {zlib.crc32("".join(texts).encode())}
    assert found["mib"] < MOST_MIB
    for pod in pods:
        assert kubelet.sent_bytes[pod] == kubelet.size_of(pod) + kubelet.size_of(pod, last=1)


def test_monitor_logs_the_lines_and_tells_the_end(
    cluster: KubernetesCluster,
    gang: Gang,
    kubelet: FakeKubelet,
    frayjobs: FrayJobs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (pod,) = gang.start()
    kubelet.write(pod, "one", "two")
    gang.end(pod)
    finish(frayjobs, gang.job, "Failed")
    with caplog.at_level(logging.INFO, logger="fray.cluster.base"):
        info = cluster.monitor(gang.job)
    assert list(info) == ["[0/0 1] one", "[0/0 1] two"]
    assert info.status == "failed"


def test_a_reader_that_has_had_enough_leaves_nothing_open(
    cluster: KubernetesCluster, gang: Gang, kubelet: FakeKubelet
) -> None:
    (pod,) = gang.start()
    kubelet.write(pod, *(f"line {number}" for number in range(10_000)))
    lines = cluster.logs(gang.job, follow=True)
    assert next(lines).text == "line 0"
    assert kubelet.open_streams == 1
    lines.close()  # type: ignore[attr-defined]
    eventually(lambda: kubelet.open_streams == 0)
    assert cluster.poll(gang.job).job_id == gang.job
