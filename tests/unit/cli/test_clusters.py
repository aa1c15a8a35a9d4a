"""Which cluster a command means, and what a command does with a cluster beyond handing on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fray.cli.__main__ import derive_error_exit_code
from fray.cli.clusters import choose_cluster, open_cluster
from fray.cli.wait import wait_for_jobs
from fray.cluster.cluster_spec import KubernetesSpec, LocalSpec
from fray.cluster.kubernetes.changes import fill_in
from fray.cluster.local.store import StateDirectory
from fray.errors import ClusterSpecError, JobNotFoundError, WaitTimeoutError
from fray.types import JobId
from fray.wire.frayjob import Parent, Queue
from tests.unit.cli.test_screen import Recorder
from tests.unit.cli.test_words import finished
from tests.unit.cluster.local_jobs import frayjob, held_locks


def test_the_command_line_comes_before_the_variable() -> None:
    environ = {"FRAY_CLUSTER_SPEC": "k8s?namespace=ml&queue=tpu"}
    assert choose_cluster(None, None, environ={}) == LocalSpec()
    assert choose_cluster(None, None, environ=environ) == KubernetesSpec(namespace="ml", queue="tpu")
    assert choose_cluster(None, "dev", environ=environ) == KubernetesSpec(namespace="dev", queue="tpu")
    assert choose_cluster("local", None, environ=environ) == LocalSpec()
    with pytest.raises(ClusterSpecError, match="has no namespaces"):
        choose_cluster("local", "dev", environ=environ)
    with pytest.raises(ClusterSpecError, match="namespace is 'A B'"):
        choose_cluster("k8s", "A B", environ={})


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    found = StateDirectory(tmp_path)
    for name, job in (("over", finished(code=3)), ("live", frayjob())):
        folder = found.job(name)
        folder.create()
        named = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name})})
        folder.write(named)
    return found


def test_jobs_of_other_processes_are_waited_for(state: StateDirectory) -> None:
    locks = held_locks(state.job("live").path)
    environ = {"FRAY_STATE_DIR": str(state.root)}
    with open_cluster(LocalSpec(), environ=environ) as cluster:
        seen = cluster.watch(JobId("live"))
        assert next(seen).status.phase is None
        killed = threading.Thread(target=locks.release)  # its runner was killed
        killed.start()
        notes = Recorder(terminal=False)
        assert wait_for_jobs(["over", "live"], timeout=None, cluster=cluster, notes=notes) == 3
        killed.join()
        assert [job.status.reason for job in seen] == ["RunnerLost"]
    assert "live: Failed" in notes.written.getvalue()


def test_jobs_are_not_waited_for_longer_than_asked(state: StateDirectory) -> None:
    locks = held_locks(state.job("live").path)
    notes = Recorder(terminal=False)
    with open_cluster(LocalSpec(), environ={"FRAY_STATE_DIR": str(state.root)}) as cluster:
        try:
            with pytest.raises(WaitTimeoutError, match="live") as caught:
                wait_for_jobs(["over", "live"], timeout=0, cluster=cluster, notes=notes)
        finally:
            locks.release()
        assert caught.value.unfinished == ("live",)
        assert derive_error_exit_code(caught.value) == 124
        with pytest.raises(JobNotFoundError):
            wait_for_jobs(["none"], timeout=0, cluster=cluster, notes=notes)


def test_a_cluster_spec_fills_in_what_a_file_leaves_open() -> None:
    spec = KubernetesSpec(image="i", queue="q", service_account="s")
    parent = Parent(name="above", root="above")
    bare = frayjob()
    filled = fill_in(bare, spec, parent=parent).to_manifest()["spec"]
    assert filled == {
        **bare.to_manifest()["spec"],
        "environment": {"image": "i"},
        "serviceAccountName": "s",
        "queue": {"name": "q"},
        "parent": {"name": "above", "root": "above"},
    }
    environment = bare.spec.environment.model_copy(update={"image": "own"})
    own = {"environment": environment, "service_account_name": "own", "queue": Queue(name="own")}
    written = bare.model_copy(update={"spec": bare.spec.model_copy(update=own)})
    assert fill_in(written, spec, parent=None) == written
    assert fill_in(written, KubernetesSpec(), parent=None) == written
