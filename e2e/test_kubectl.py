"""What a person at a terminal sees of FrayJobs through kubectl alone."""

from __future__ import annotations

import re

import pytest

from e2e.cluster.command import await_condition
from e2e.cluster.errors import CommandError
from e2e.job_namespace import JobNamespace, build_shell, until_told
from e2e.kubectl import Kubectl

FIELD = re.compile(r"^  (?P<name>\w+)\t<(?P<type>[^>]+)>.*$")
GONE_SECONDS = 180.0


def test_get_shows_how_jobs_fare(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("running", until_told(), replicas=2))
    jobs.await_job("running", "condition=Running")
    jobs.run(build_shell("broken", "exit 7"))
    listed = [line.split() for line in jobs.kubectl("get", "fj").splitlines()]
    assert listed[0] == ["NAME", "PHASE", "READY", "ATTEMPT", "REASON", "AGE"]
    assert [row[:5] for row in listed[1:]] == [
        ["broken", "Failed", "0/1", "1", "NonZeroExit"],
        ["running", "Running", "2/2", "1", "AllHostsRunning"],
    ]


def test_describe_tells_the_story_of_a_failure(jobs: JobNamespace) -> None:
    # It ends when it is told to: a shorter life might not be seen to run.
    jobs.submit(build_shell("broken", until_told(then="echo no space left >&2; exit 7")))
    jobs.await_job("broken", "condition=Running")
    jobs.tell("broken")
    jobs.await_end("broken")
    jobs.await_events("broken", {"AttemptStarted", "AttemptRunning", "AttemptEnded", "Failed"})
    told = jobs.kubectl("describe", "fj", "broken")
    assert "rank 0 (slice 0, host 0) exited with code 7" in told
    assert "no space left" in told
    _, _, events = told.partition("\nEvents:\n")
    rows = {line.split()[1]: line for line in events.splitlines()[2:]}
    assert rows.keys() == {"AttemptStarted", "AttemptRunning", "AttemptEnded", "Failed"}
    assert "no space left" in rows["Failed"]


def test_wait_ends_in_time_and_says_so_when_it_does_not(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("slow", until_told()))
    jobs.await_job("slow", "condition=Running")
    with pytest.raises(CommandError, match="timed out waiting"):
        jobs.kubectl("wait", "fj/slow", "--for=condition=Finished", "--timeout=1s")
    jobs.tell("slow")
    said = jobs.kubectl("wait", "fj/slow", "--for=condition=Finished", "--timeout=180s", seconds=200)
    assert said == "frayjob.fray.dev/slow condition met\n"


def explain(kubectl: Kubectl, path: str) -> dict[str, tuple[str, str]]:
    """Type and description of each field that `kubectl explain` lists at a path."""
    _, _, listed = kubectl("explain", path).partition("\nFIELDS:\n")
    fields: dict[str, tuple[str, str]] = {}
    name = ""
    for line in listed.splitlines():
        field = FIELD.match(line)
        if field is not None:
            name = field["name"]
            fields[name] = field["type"], ""
        elif name:
            kind, words = fields[name]
            fields[name] = kind, f"{words} {line.strip()}".strip()
    return fields


def test_explain_describes_every_field(jobs: JobNamespace) -> None:
    """Down to the last one: a field that nobody explains has to be guessed."""
    paths, seen, silent = ["fj.spec", "fj.status"], 0, []
    while paths:
        path = paths.pop()
        for name, (kind, words) in explain(jobs.kubectl, path).items():
            seen += 1
            if not words or "<no description>" in words:
                silent.append(f"{path}.{name}")
            if kind in {"Object", "[]Object"}:
                paths.append(f"{path}.{name}")
    assert silent == []
    assert seen > 100


def list_everything(kubectl: Kubectl) -> set[str]:
    """Kind and name of every object of a namespace that can be listed, but for events, which expire."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list,delete", "--output=name").split()
    wanted = [kind for kind in kinds if not kind.startswith("events")]
    return set(kubectl("get", ",".join(wanted), "--output=name").split())


def test_delete_leaves_nothing_behind(jobs: JobNamespace) -> None:
    """Not of a job that runs, and not of one that has failed and been tried again."""
    before = list_everything(jobs.kubectl)
    jobs.run(build_shell("over", "exit 1", retries={"failures": 1}))
    jobs.submit(build_shell("running", until_told(), replicas=2))
    jobs.await_job("running", "condition=Running")
    during = list_everything(jobs.kubectl) - before
    assert {name.partition("/")[0] for name in during} >= {
        *("frayjob.fray.dev", "jobset.jobset.x-k8s.io", "job.batch", "pod", "service"),
    }
    jobs.kubectl("delete", "fj", "over", "running")
    await_condition(
        "everything of the jobs is gone",
        lambda: list_everything(jobs.kubectl) == before,
        timeout=GONE_SECONDS,
        details=lambda: "\n".join(sorted(list_everything(jobs.kubectl) - before)),
    )


MOMENTS = {
    "submitted": "jsonpath={.metadata.name}=gone",
    "begun": "jsonpath={.status.attempt}=1",
    "running": "condition=Running",
    "stopping": "jsonpath={.status.phase}=Stopping",
    "backing off": "jsonpath={.status.reason}=BackOff",
}
"""When a job is deleted, as `kubectl wait` understands it."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_can_be_deleted_at_any_moment(moment: str, jobs: JobNamespace) -> None:
    before = list_everything(jobs.kubectl)
    slow = "trap 'sleep 10; exit 143' TERM; while true; do sleep 0.1; done"
    script = "exit 1" if moment == "backing off" else slow
    # The pause after the fifth failure is long enough to be met.
    jobs.submit(build_shell("gone", script, replicas=2, retries={"failures": 20}))
    if moment == "stopping":
        jobs.await_job("gone", "condition=Running")
        jobs.kubectl("patch", "fj/gone", "--type=merge", '--patch={"spec": {"stopped": true}}')
    jobs.await_job("gone", MOMENTS[moment])
    jobs.kubectl("delete", "fj", "gone")
    await_condition(
        "everything of the job is gone",
        lambda: list_everything(jobs.kubectl) == before,
        timeout=GONE_SECONDS,
        details=lambda: "\n".join(sorted(list_everything(jobs.kubectl) - before)),
    )


def test_a_wrong_job_is_refused_at_once_with_the_field_named(jobs: JobNamespace) -> None:
    with pytest.raises(CommandError, match=r"spec\.resources\.tpu\.type"):
        jobs.submit(build_shell("wrong", "true", resources={"tpu": {"type": "v5p-17"}}))
    with pytest.raises(CommandError, match="replica"):
        jobs.submit(build_shell("typo", "true", replicass=2))
