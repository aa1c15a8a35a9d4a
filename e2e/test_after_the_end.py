"""What stays after a job's end, and for how long: time to live, the last attempts' logs, and children."""

from __future__ import annotations

from e2e.job_namespace import JobNamespace, build_shell, until_told
from fray.vocabulary import LABEL_JOB

REMOVED_SECONDS = 240.0


def test_a_finished_job_is_deleted_with_all_that_it_owned(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("kept", "true"))
    jobs.submit(build_shell("passing", "true", replicas=2, ttlSecondsAfterFinished=30))
    assert jobs.await_end("passing")["phase"] == "Succeeded"
    jobs.kubectl.wait("frayjob/passing", "delete", seconds=REMOVED_SECONDS)
    # Deleted in the foreground: nothing is left when it has gone.
    for kind in ("jobsets", "jobs", "pods"):
        assert jobs.kubectl.items(kind, f"--selector={LABEL_JOB}=passing") == [], kind
    assert jobs.await_end("kept")["phase"] == "Succeeded"


def test_a_time_to_live_that_is_raised_keeps_the_job(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("raised", "true", ttlSecondsAfterFinished=40))
    jobs.await_end("raised")
    patch = '--patch={"spec": {"ttlSecondsAfterFinished": 86400}}'
    jobs.kubectl("patch", "fj/raised", "--type=merge", patch)
    jobs.run(build_shell("later", "true", ttlSecondsAfterFinished=40))
    jobs.kubectl.wait("frayjob/later", "delete", seconds=REMOVED_SECONDS)
    assert jobs.job("raised")["status"]["phase"] == "Succeeded"


def test_five_attempts_leave_the_logs_of_three(jobs: JobNamespace) -> None:
    script = 'echo "this is attempt $FRAY_ATTEMPT"; exit 7'
    status = jobs.run(build_shell("unlucky", script, retries={"failures": 4}), seconds=400)
    assert status["phase"] == "Failed", status
    assert [attempt["number"] for attempt in status["attempts"]] == [1, 2, 3, 4, 5]
    for old in (1, 2):
        jobs.kubectl.wait(f"jobset/unlucky-a{old}", "delete", seconds=REMOVED_SECONDS)
        assert jobs.pods("unlucky", attempt=old) == []
    left = jobs.kubectl.items("jobsets", f"--selector={LABEL_JOB}=unlucky")
    assert sorted(jobset["metadata"]["name"] for jobset in left) == [f"unlucky-a{n}" for n in (3, 4, 5)]
    for kept in (3, 4, 5):
        assert jobs.logs("unlucky", attempt=kept) == [f"this is attempt {kept}\n"]


def launch(jobs: JobNamespace, parent: str) -> None:
    """Have a parent with a child and a grandchild run."""
    jobs.submit(build_shell(parent, until_told(then="exit 3")))
    jobs.await_job(parent, "condition=Running")
    jobs.submit(build_shell("child", until_told(), parent={"name": parent, "root": parent}))
    jobs.submit(build_shell("grandchild", until_told(), parent={"name": "child", "root": parent}))
    for name in ("child", "grandchild"):
        jobs.await_job(name, "condition=Running")


def assert_all_ended(jobs: JobNamespace, told: str) -> None:
    """Child and grandchild were stopped, say by whom, and hold no pod any more."""
    for name, because in (("child", told), ("grandchild", "its parent child was stopped")):
        status = jobs.await_end(name)
        assert (status["phase"], status["reason"]) == ("Stopped", "StopRequested"), status
        assert jobs.condition(name, "Stopped")["message"] == because
        jobs.kubectl.wait("pods", "delete", seconds=REMOVED_SECONDS, selector=f"{LABEL_JOB}={name}")


def test_children_end_with_a_parent_that_fails(jobs: JobNamespace) -> None:
    launch(jobs, "sweep")
    jobs.tell("sweep")
    assert jobs.await_end("sweep")["phase"] == "Failed"
    assert_all_ended(jobs, "its parent sweep failed")


def test_children_end_with_a_parent_that_is_deleted(jobs: JobNamespace) -> None:
    launch(jobs, "sweep")
    jobs.kubectl("delete", "frayjob", "sweep")
    assert_all_ended(jobs, "its parent sweep was deleted")


def test_a_succeeded_parent_stays_until_its_children_have_finished(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("boss", until_told(), ttlSecondsAfterFinished=0))
    jobs.await_job("boss", "condition=Running")
    jobs.submit(build_shell("aide", until_told(), parent={"name": "boss", "root": "boss"}))
    jobs.await_job("aide", "condition=Running")
    jobs.tell("boss")
    assert jobs.await_end("boss")["phase"] == "Succeeded"
    jobs.run(build_shell("other", "true", ttlSecondsAfterFinished=30))
    jobs.kubectl.wait("frayjob/other", "delete", seconds=REMOVED_SECONDS)
    assert "deletionTimestamp" not in jobs.job("boss")["metadata"]
    jobs.tell("aide")
    assert jobs.await_end("aide")["phase"] == "Succeeded"
    jobs.kubectl.wait("frayjob/boss", "delete", seconds=REMOVED_SECONDS)
