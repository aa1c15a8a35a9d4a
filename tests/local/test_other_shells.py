"""Another shell sees a job, reads its output and ends it, and two runs never share a name."""

from __future__ import annotations

import json
import signal

import yaml

from tests.local.harness import Fray, job_manifest, running_job, wait_for

WAITING = "echo ready; exec sleep 300"


def test_list_shows_name_phase_attempt_hosts_and_reason(fray: Fray) -> None:
    fray.run_job(job_manifest("exit 3", name="bad"))
    process = running_job(fray, job_manifest(WAITING, name="good", replicas=2), until="ready")
    wait_for(lambda: fray.phase("good") == "Running", "the word that both hosts run")
    heading, *rows = fray.run("list").out.splitlines()
    bad, good = sorted(rows)
    assert heading.split() == ["NAME", "PHASE", "ATTEMPT", "READY", "REASON", "AGE"]
    assert bad.split()[:5] == ["bad", "Failed", "1", "0/1", "NonZeroExit"]
    assert good.split()[:5] == ["good", "Running", "1", "2/2", "AllHostsRunning"]
    process.send_signal(signal.SIGINT)
    assert fray.finish(process).code == 130


def test_list_of_nothing_says_so_on_standard_error(fray: Fray) -> None:
    result = fray.run("list")
    assert (result.code, result.out) == (0, "")
    assert f"no jobs in {fray.state}" in result.err


def test_resources_are_printed_as_clean_data(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    listed = json.loads(fray.run("list", "-o", "json").out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["job"]
    status = fray.run("status", "job", "-o", "yaml")
    resource = yaml.safe_load(status.out)
    assert resource["kind"] == "FrayJob"
    assert resource["status"]["phase"] == "Succeeded"
    assert status.err == ""


def test_status_tells_the_story_attempt_by_attempt(fray: Fray) -> None:
    script = "[ $FRAY_ATTEMPT = 2 ] || { echo 'no such file: weights'; exit 4; }"
    fray.run_job(job_manifest(script, retries={"failures": 1}))
    story = fray.run("status", "job").out
    assert "job   Succeeded   Completed" in story
    assert "rank 0 (slice 0, host 0) exited with code 4" in story
    assert "no such file: weights" in story
    assert "1 of 1 for failures used" in story
    assert "2   Success after" in story


def test_stop_ends_a_job_and_waits_for_it(fray: Fray) -> None:
    process = running_job(fray, job_manifest(WAITING, replicas=2), until="ready")
    stopped = fray.run("stop", "job")
    assert (stopped.code, stopped.out) == (0, "")
    assert "job: stopped" in stopped.err
    assert "somebody asked for its end" in fray.run("status", "job").out
    assert fray.stored("job")["status"]["phase"] == "Stopped"
    assert fray.finish(process).code == 143
    assert not fray.processes()


def test_a_command_in_a_host_needs_a_container(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    refused = fray.run("exec", "job", "--", "true")
    assert (refused.code, refused.out) == (2, "")
    assert "a command in a host of job 'job' is not supported here" in refused.err
    assert "no job 'jop'" in fray.run("exec", "jop", "--", "true").err
    assert "standard input is none" in fray.run("shell", "job").err


def test_stop_without_waiting_returns_at_once(fray: Fray) -> None:
    gate = fray.folder / "gate"
    deaf = f'trap "" TERM; echo ready; until [ -e {gate} ]; do sleep 0.02; done'
    template = {"spec": {"terminationGracePeriodSeconds": 600}}
    process = running_job(fray, job_manifest(deaf, podTemplate=template), until="ready")
    assert fray.run("stop", "job", "--no-wait").code == 0
    wait_for(lambda: fray.phase("job") == "Stopping", "the request to be seen")
    gate.touch()
    assert fray.finish(process).code == 143


def test_stop_of_what_has_ended_changes_nothing_and_of_what_never_was_is_refused(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    ended = fray.run("stop", "job")
    assert (ended.code, "it is Succeeded" in ended.err) == (0, True)
    assert fray.status("job")["status"]["phase"] == "Succeeded"
    unknown = fray.run("stop", "jop")
    assert unknown.code == 2
    assert "no job 'jop'" in unknown.err
    assert "Known jobs: job." in unknown.err


def test_the_newest_jobs_are_listed_first_and_phases_can_be_chosen(fray: Fray) -> None:
    for name, script in (("b", "true"), ("a", "exit 3"), ("c", "true")):
        fray.run_job(job_manifest(script, name=name))
        file = fray.state / "jobs" / name / "job.json"
        stored = json.loads(file.read_text())
        stored["metadata"]["creationTimestamp"] = f"2026-01-0{'bac'.index(name) + 1}T00:00:00Z"
        file.write_text(json.dumps(stored))

    def listed(*options: str) -> list[str]:
        return [line.split()[0] for line in fray.run("list", *options).out.splitlines()[1:]]

    assert listed() == ["c", "a", "b"]
    assert listed("--limit", "2") == ["c", "a"]
    assert listed("--phase", "succeeded") == ["c", "b"]
    assert listed("--phase", "failed", "--phase", "succeeded", "--limit", "1") == ["c"]
    assert "no jobs of that phase" in fray.run("list", "--phase", "running").err
    wrong = fray.run("list", "--phase", "done")
    assert (wrong.code, "Legal: " in wrong.err, "Succeeded" in wrong.err) == (2, True, True)


def test_several_jobs_are_stopped_and_deleted(fray: Fray) -> None:
    runs = [running_job(fray, job_manifest(WAITING, name=name), until="ready") for name in ("one", "two")]
    fray.run_job(job_manifest("true", name="over"))
    stopped = fray.run("stop", "one", "two", "over")
    assert stopped.code == 0
    assert "it is Succeeded" in stopped.err
    assert "one: stopped\ntwo: stopped\n" in stopped.err
    assert [fray.finish(run).code for run in runs] == [143, 143]
    third = running_job(fray, job_manifest(WAITING, name="three"), until="ready")
    deleted = fray.run("delete", "one", "three")
    assert (deleted.code, deleted.out) == (
        0,
        "frayjob.fray.dev/one deleted\nfrayjob.fray.dev/three deleted\n",
    )
    assert fray.finish(third).code == 143
    assert sorted(entry.name for entry in (fray.state / "jobs").iterdir()) == ["over", "two"]
    assert fray.run("delete", "one").code == 2


def test_a_path_is_no_name(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    for name in ("../job", "..", "/etc", "job/", ""):
        assert fray.run("status", name).code == 2, name


def test_logs_follow_a_running_job_over_its_attempts_to_the_end(fray: Fray) -> None:
    gate = fray.folder / "gate"
    script = f"echo attempt $FRAY_ATTEMPT; until [ -e {gate} ]; do sleep 0.02; done; [ $FRAY_ATTEMPT = 2 ]"
    process = running_job(fray, job_manifest(script, retries={"failures": 1}), until="attempt 1")
    follower = fray.start("logs", "-f", "job")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"[0/0] attempt 1\n"
    gate.touch()
    assert fray.finish(follower).out == "[0/0] attempt 2\n"
    assert fray.finish(process).code == 0


def test_logs_of_a_killed_run_show_its_unfinished_last_line(fray: Fray) -> None:
    process = running_job(fray, job_manifest("echo ready; printf half; exec sleep 300"), until="half")
    process.kill()
    process.wait()
    fray.wait_gone()
    assert fray.run("logs", "job").out == "[0/0] ready\n[0/0] half\n"


def test_ctrl_c_ends_logs_quietly_and_not_the_job(fray: Fray) -> None:
    process = running_job(fray, job_manifest(WAITING), until="ready")
    follower = fray.start("logs", "-f", "job")
    assert follower.stdout is not None
    assert follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    result = fray.finish(follower)
    assert (result.code, result.err) == (130, "")
    assert process.poll() is None


def test_a_second_run_of_a_running_name_is_refused_and_does_no_harm(fray: Fray) -> None:
    process = running_job(fray, job_manifest(WAITING), until="ready")
    wait_for(lambda: fray.phase("job") == "Running", "the word that it runs")
    second = fray.run_job(job_manifest("echo second"))
    assert second.code == 2
    assert f"already running (process {process.pid})" in second.err
    assert "fray logs -f job" in second.err
    assert fray.status("job")["status"]["phase"] == "Running"
    assert fray.run("logs", "job").out == "[0/0] ready\n"


def test_of_two_runs_started_together_one_runs(fray: Fray) -> None:
    path = fray.write_job(job_manifest(WAITING))
    runs = [fray.start("run", "-f", path) for _ in range(2)]
    wait_for(lambda: any(run.poll() is not None for run in runs), "the refusal of one")
    (loser,) = [run for run in runs if run.poll() is not None]
    (winner,) = [run for run in runs if run is not loser]
    assert fray.finish(loser).code == 2
    wait_for(lambda: fray.phase("job") == "Running", "the start of the other")
    winner.send_signal(signal.SIGINT)
    assert fray.finish(winner).code == 130


def test_another_name_for_the_same_file_runs_beside_it(fray: Fray) -> None:
    process = running_job(fray, job_manifest(WAITING), until="ready")
    result = fray.run_job(job_manifest("echo $FRAY_JOB_NAME"), "--name", "other")
    assert (result.code, result.out) == (0, "[0/0] other\n")
    assert process.poll() is None


def test_readers_looking_all_the_time_do_not_keep_a_run_from_starting(fray: Fray) -> None:
    fray.run_job(job_manifest("true"))
    readers = [fray.start("status", "job") for _ in range(4)]
    assert fray.run_job(job_manifest("true")).code == 0
    assert {fray.finish(reader).code for reader in readers} <= {0, 2}


def test_a_new_run_takes_the_place_of_a_finished_one(fray: Fray) -> None:
    fray.run_job(job_manifest("echo first; exit 1", replicas=2))
    fray.run_job(job_manifest("echo second"))
    assert fray.run("logs", "job").out == "[0/0] second\n"
    assert fray.status("job")["status"]["phase"] == "Succeeded"
    assert not (fray.state / "jobs" / "job" / "logs" / "attempt-1" / "slice-0-host-1.log").exists()
