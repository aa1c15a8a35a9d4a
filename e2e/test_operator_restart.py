"""The operator may die at any time: jobs run on, and the next leader tells how they ended."""

from __future__ import annotations

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace, build_shell, until_told
from e2e.kubectl import Kubectl
from e2e.release import OPERATOR, Release

LEASE = "fray-operator"
TAKEOVER_SECONDS = 180.0


def find_leader(kubectl: Kubectl) -> str:
    """Name of the operator pod that holds the Lease; empty while none does that is there."""
    leases = kubectl.items("leases", f"--field-selector=metadata.name={LEASE}")
    leaders = [(lease["spec"].get("holderIdentity") or "").rpartition("_")[0] for lease in leases]
    pods = kubectl.items("pods", f"--selector={OPERATOR}")
    # The Lease names a replica that was killed until another one takes it.
    return next((pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] in leaders), "")


def take_operator_away(kubectl: Kubectl, release: Release) -> None:
    """End every replica without any time to say goodbye, and let none come back."""
    kubectl("scale", f"deployment/{release.deployment}", "--replicas=0")
    kubectl("delete", "pods", f"--selector={OPERATOR}", "--force", "--grace-period=0", "--wait=false")
    # A ReplicaSet that has not heard of the change yet puts others in their place.
    await_condition("no replica is left, and none comes", lambda: has_no_replica(kubectl), timeout=180)


def has_no_replica(kubectl: Kubectl) -> bool:
    """Whether the operator has no pod, and all its ReplicaSets have seen that they shall have none."""
    sets = kubectl.items("replicasets", f"--selector={OPERATOR}")
    return not kubectl.items("pods", f"--selector={OPERATOR}") and all(
        each["spec"]["replicas"] == each["status"]["replicas"] == 0
        and each["status"].get("observedGeneration") == each["metadata"]["generation"]
        for each in sets
    )


def await_pod_phases(jobs: JobNamespace, job: str, phase: str) -> None:
    await_condition(
        f"all pods of {job} are {phase}",
        lambda: {pod["status"]["phase"] for pod in jobs.pods(job)} == {phase},
        timeout=180,
        details=jobs.describe,
    )


def test_a_job_that_ends_while_no_operator_lives_has_succeeded_when_one_is_back(
    jobs: JobNamespace, release: Release
) -> None:
    system = jobs.kubectl.within(release.namespace)
    jobs.submit(build_shell("lonely", until_told(), replicas=2))
    jobs.await_job("lonely", "condition=Running")
    # Later than the status: who is killed in between tells no event.
    jobs.await_events("lonely", {"AttemptStarted", "AttemptRunning"})
    take_operator_away(system, release)
    jobs.tell("lonely")
    await_pod_phases(jobs, "lonely", "Succeeded")
    ends = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
        for pod in jobs.pods("lonely")
    ]
    assert jobs.condition("lonely", "Finished")["status"] == "False"

    system("scale", f"deployment/{release.deployment}", "--replicas=2")
    status = jobs.await_end("lonely")
    assert status["phase"] == "Succeeded", status
    (attempt,) = status["attempts"]
    # Not when the operator came back, but when the last pod ended.
    assert attempt["endTime"].removesuffix("Z").removesuffix(".000") == max(ends).removesuffix("Z")
    assert len(jobs.kubectl.items("jobsets")) == 1
    jobs.await_events("lonely", {"AttemptRunning", "AttemptStarted", "Succeeded"})


def test_a_failure_that_no_operator_saw_is_retried_when_one_is_back(
    jobs: JobNamespace, release: Release
) -> None:
    system = jobs.kubectl.within(release.namespace)
    script = f'test "$FRAY_ATTEMPT" = 2 && exit 0; {until_told(then="exit 3")}'
    jobs.submit(build_shell("retried", script, retries={"failures": 1}))
    jobs.await_job("retried", "condition=Running")
    take_operator_away(system, release)
    jobs.tell("retried")
    await_pod_phases(jobs, "retried", "Failed")

    system("scale", f"deployment/{release.deployment}", "--replicas=2")
    status = jobs.await_end("retried")
    assert status["phase"] == "Succeeded", status
    assert [(a["verdict"], a.get("exitCode")) for a in status["attempts"]] == [
        ("Failure", 3),
        ("Success", None),
    ]
    assert status["retries"]["failuresUsed"] == 1


def test_the_standby_takes_over_from_a_leader_that_was_killed(jobs: JobNamespace, release: Release) -> None:
    system = jobs.kubectl.within(release.namespace)
    await_condition("somebody leads", lambda: find_leader(system) != "", timeout=TAKEOVER_SECONDS)
    leader = find_leader(system)
    jobs.submit(build_shell("before", until_told()))
    jobs.await_job("before", "condition=Running")
    pod = jobs.pods("before")[0]["metadata"]["uid"]

    system("delete", "pod", leader, "--force", "--grace-period=0", "--wait=false")
    jobs.submit(build_shell("after", "true"))
    assert jobs.await_end("after", seconds=TAKEOVER_SECONDS)["phase"] == "Succeeded"
    assert find_leader(system) not in ("", leader)
    assert jobs.pods("before")[0]["metadata"]["uid"] == pod
    jobs.tell("before")
    assert jobs.await_end("before")["phase"] == "Succeeded"
