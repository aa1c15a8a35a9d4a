"""Launchers that are jobs and begin anew, and the first failure of many jobs, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.faulty_proxy import FaultyProxy
from fray.client import Client, JobFailed, JobHandle, wait_all
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import Background, command, finish
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import FrayJobs


class Launchers:
    """Processes of jobs, each with a connection of its own."""

    def __init__(self, namespace: str, kubeconfig: str) -> None:
        self._spec = KubernetesSpec(namespace=namespace)
        self._variables = {"KUBECONFIG": kubeconfig}
        self._clusters: list[KubernetesCluster] = []

    def of(self, job: str | None) -> Client:
        variables = self._variables if job is None else {**self._variables, "FRAY_JOB_NAME": job}
        self._clusters.append(KubernetesCluster(self._spec, environ=variables))
        return Client(self._clusters[-1])

    def close(self) -> None:
        for cluster in self._clusters:
            cluster.close()


@pytest.fixture
def launchers(control_plane: ControlPlane, frayjobs: FrayJobs) -> Iterator[Launchers]:
    made = Launchers(frayjobs.namespace, str(control_plane.kubeconfig))
    yield made
    made.close()


def test_a_launcher_that_begins_anew_gets_its_children_in_their_order(
    launchers: Launchers, frayjobs: FrayJobs
) -> None:
    before = launchers.of("rl")
    first, second, third = (before.submit(command("eval")) for _ in range(3))
    assert [first.job_id, second.job_id, third.job_id] == ["eval", "eval-2", "eval-3"]
    finish(frayjobs, "eval-2")
    anew = launchers.of("rl")
    assert [anew.submit(command("eval")).job_id for _ in range(3)] == ["eval", "eval-3", "eval-4"]
    assert anew.submit(command("train")).job_id == "train"
    assert before.submit(command("train")) == anew.attach("train")


def test_children_of_others_are_left_alone(launchers: Launchers, frayjobs: FrayJobs) -> None:
    outside = launchers.of(None)
    taken = outside.submit(command("eval"))
    mine = launchers.of("rl").submit(command("eval"))
    theirs = launchers.of("other").submit(command("eval"))
    again = launchers.of(None).submit(command("eval"))
    assert len({taken, mine, theirs, again}) == 4
    assert launchers.of("rl").submit(command("eval")) == mine
    assert launchers.of(None).submit(command("eval"), adopt_existing=True) == taken


def test_a_child_that_was_asked_to_end_is_launched_again(launchers: Launchers) -> None:
    ended = launchers.of("rl").submit(command("eval"))
    ended.terminate()
    assert launchers.of("rl").submit(command("eval")) != ended


def test_a_child_of_another_name_is_not_taken_for_it(launchers: Launchers) -> None:
    launcher = launchers.of("rl")
    numbered = [launcher.submit(command("eval")) for _ in range(2)][1]
    assert numbered.job_id == "eval-2"
    assert launchers.of("rl").submit(command("eval-2")) != numbered


def test_the_first_failure_ends_the_wait_that_uses_one_watch(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    client = Client(proxied)
    jobs = [client.submit(command(f"train-{letter}")) for letter in "abcd"]
    waiting = Background(lambda: wait_all(jobs))
    eventually(lambda: proxy.open_watches("frayjobs"))
    finish(frayjobs, jobs[3].job_id)
    finish(frayjobs, jobs[1].job_id, "Failed")
    with pytest.raises(JobFailed) as caught:
        waiting.result()
    assert caught.value.job_id == jobs[1].job_id
    assert sum(call.what == "WATCH frayjobs" for call in proxy.calls) == 1


def test_a_handle_goes_to_other_processes(new_cluster: NewCluster, frayjobs: FrayJobs) -> None:
    cluster = new_cluster()
    job = Client(cluster).submit(command())
    assert JobHandle(new_cluster(), job.job_id) == job
    assert JobHandle(new_cluster(namespace="other"), job.job_id) != job
