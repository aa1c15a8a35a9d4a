"""What a client holds: one thread and one pool of connections while it is used, and nothing afterwards."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy
from fray.cluster import create_cluster
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import ClusterClosedError
from fray.types import Entrypoint, JobRequest
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import Background, command, finish
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import FrayJobs


def sockets() -> set[str]:
    """The open sockets of this process."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            target = str(path.readlink())
        except OSError:
            continue  # that of the listing itself
        if target.startswith("socket:"):
            found.add(target)
    return found


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fray-kubernetes"]


def test_500_launches_leave_no_thread_and_no_connection(
    cluster: KubernetesCluster, frayjobs: FrayJobs
) -> None:
    before = sockets()
    assert threads() == []
    request = JobRequest(name="train", entrypoint=Entrypoint.from_callable(print))
    for _ in range(500):
        cluster.launch(request)
    assert len(threads()) == 1
    # One connection each for what was sent at the same time, and the loop's own two.
    assert len(sockets() - before) <= 4
    cluster.close()
    assert threads() == []
    assert sockets() <= before
    assert len(cluster.list_jobs()) == 500  # it begins anew


def test_an_object_that_nobody_holds_is_closed(new_cluster: NewCluster, control_plane: Any) -> None:
    cluster = KubernetesCluster(
        KubernetesSpec(namespace="default"), environ={"KUBECONFIG": str(control_plane.kubeconfig)}
    )
    cluster.list_jobs()
    known = weakref.ref(cluster)
    assert len(threads()) == 1
    del cluster
    gc.collect()
    assert known() is None
    assert threads() == []


def test_it_is_made_by_its_spec_and_can_be_pickled(
    monkeypatch: pytest.MonkeyPatch, control_plane: Any, frayjobs: FrayJobs
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    with create_cluster(f"k8s?namespace={frayjobs.namespace}&context=fray-test") as cluster:
        assert isinstance(cluster, KubernetesCluster)
        job = cluster.launch(command())
        with pickle.loads(pickle.dumps(cluster)) as other:
            assert other.poll(job) == cluster.poll(job)
            assert other.spec == cluster.spec


def interrupt_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_this_thread() -> None:
    """The main thread learns of it only when the launch has ended, and nobody gets to know the job."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.mark.parametrize("interrupt", [interrupt_process, interrupt_this_thread])
def test_ctrl_c_during_a_launch_leaves_nothing(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs, interrupt: Callable[[], None]
) -> None:
    """It comes while the FrayJob is there and its Secret is on its way."""

    def rule(call: Call) -> Fault | None:
        if call.what == "POST secrets":
            interrupt()
        return None

    proxied.list_jobs()
    proxy.rule = rule
    with pytest.raises(KeyboardInterrupt):
        proxied.launch(JobRequest(name="train", entrypoint=Entrypoint.from_callable(print)))
    assert frayjobs.api.get(frayjobs.collection).body["items"] == []


def test_ctrl_c_during_a_wait_leaves_no_watch(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    job = proxied.launch(command())

    def interrupt() -> None:
        eventually(lambda: proxy.open_watches("frayjobs"))
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        proxied.wait(job)
    interrupting.join()
    eventually(lambda: proxy.open_watches("frayjobs") == 0)
    assert proxied.poll(job).job_id == job


def test_calls_under_way_end_when_it_is_closed(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    job = proxied.launch(command())
    other = proxied.launch(command())
    calls = [
        Background(lambda: proxied.wait(job)),
        Background(lambda: proxied.wait([job, other], timeout=1000)),
        Background(lambda: list(proxied.logs(job, follow=True))),
    ]
    eventually(lambda: proxy.open_watches("frayjobs") == 3 and proxy.open_watches("pods") == 1)
    lines = proxied.logs(other, follow=True)
    proxied.close()
    for call in calls:
        with pytest.raises(ClusterClosedError) as caught:
            call.result()
        assert caught.value.cluster == str(proxied.spec)
    assert threads() == []
    assert proxied.poll(job).job_id == job  # it begins anew
    finish(frayjobs, other)
    assert list(lines) == []  # whose reading begins only now
