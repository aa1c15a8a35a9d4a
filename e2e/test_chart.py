"""The chart in a living cluster: its notes, an upgrade, and a removal that no job notices.

What the API server makes of its manifests and rights is tested in tests/integration/chart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.command import await_condition, run
from e2e.cluster.errors import CommandError
from e2e.job_namespace import JobNamespace, build_shell, open_job_namespace, until_told
from e2e.kubectl import Kubectl
from e2e.release import OPERATOR, SYSTEM, Release

CRD = "crd/frayjobs.fray.dev"


@pytest.fixture
def without_account(kubectl: Kubectl, release: Release) -> Iterator[JobNamespace]:
    """A namespace that the chart knows nothing of."""
    with open_job_namespace(kubectl, release, account=False) as space:
        yield space
    release.install()  # as it was: the namespace is gone from its values


def test_the_notes_of_an_installation_run_a_first_job(release: Release, tmp_path: Path) -> None:
    """Word by word, by a shell: a user who follows them must see a job succeed."""
    notes = release.helm("get", "notes", release.name, f"--namespace={SYSTEM}")
    lines = [line.removeprefix("  ") for line in notes.splitlines() if line.startswith("  ")]
    begin = next(index for index, line in enumerate(lines) if "rollout status" in line)
    end = next(index for index, line in enumerate(lines) if "logs" in line)
    script = "\n".join(lines[begin : end + 1])
    (tmp_path / "kubectl").symlink_to(release.kubectl.program)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(release.kubectl.kubeconfig),
    }
    try:
        said = run(["sh", "-euc", script], environment=environment)
        assert said.endswith("hello from a FrayJob\n"), said
    finally:
        release.kubectl.remove("frayjob/hello")


def test_a_namespace_that_the_chart_does_not_know_is_told_so_and_helped_by_an_upgrade(
    release: Release, without_account: JobNamespace
) -> None:
    """The upgrade is the one that the notes name; the operator is replaced under the waiting job."""
    jobs = without_account
    jobs.submit(build_shell("early", "echo at last"))
    jobs.await_reason("early", "AdmissionRefused")
    assert 'serviceaccount "fray-job" not found' in jobs.condition("early", "Running")["message"]

    release.install(f"--set=jobs.namespaces={{default,{jobs.name}}}", "--set=logLevel=DEBUG")
    status = jobs.await_end("early")
    assert status["phase"] == "Succeeded", status
    assert len(status["attempts"]) == 1
    assert jobs.logs("early") == ["at last\n"]


def test_jobs_run_on_without_the_chart_and_are_found_again_by_the_next_installation(
    jobs: JobNamespace, release: Release
) -> None:
    jobs.submit(build_shell("survivor", until_told(), replicas=2))
    jobs.await_job("survivor", "condition=Running")
    before = [pod["metadata"]["uid"] for pod in jobs.pods("survivor")]

    release.uninstall()
    assert jobs.kubectl.within(SYSTEM).items("pods", f"--selector={OPERATOR}") == []
    with pytest.raises(CommandError, match="NotFound"):
        jobs.kubectl("get", f"clusterrole/{release.deployment}")
    # The kind stays, and with it every job.
    jobs.kubectl("get", CRD)
    assert jobs.condition("survivor", "Running")["status"] == "True"
    jobs.submit(build_shell("while-away", "true"))

    release.install()
    assert jobs.await_end("while-away")["phase"] == "Succeeded"
    assert [pod["metadata"]["uid"] for pod in jobs.pods("survivor")] == before
    jobs.tell("survivor")
    assert jobs.await_end("survivor")["phase"] == "Succeeded"


def find_replicas(kubectl: Kubectl) -> list[str]:
    """Names of the operator's pods, but for those that are ending, as after an upgrade."""
    found = [pod["metadata"] for pod in kubectl.items("pods", f"--selector={OPERATOR}")]
    return [metadata["name"] for metadata in found if "deletionTimestamp" not in metadata]


def test_operator_pods_need_no_right_that_the_restricted_standard_forbids(release: Release) -> None:
    """A namespace that enforces the standard takes them; one pod is recreated to prove it."""
    system = release.kubectl.within(SYSTEM)
    label = "pod-security.kubernetes.io/enforce"
    system("label", "namespace", SYSTEM, f"{label}=restricted", "--overwrite")
    try:
        before = find_replicas(system)
        first = before[0]
        system("delete", "pod", first)
        await_condition(
            "the operator is whole again",
            lambda: release.is_ready() and len({*find_replicas(system)} - {first}) == len(before),
            timeout=180,
        )
    finally:
        system("label", "namespace", SYSTEM, f"{label}-")
