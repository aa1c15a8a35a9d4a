"""A gang of processes starts together, ends together, and knows its places."""

from __future__ import annotations

import json

import pytest

from tests.local.harness import Fray, job_manifest, lines_of

PRINT_ENVIRONMENT = ("import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))",)


def environments(out: str) -> dict[tuple[int, int], dict[str, str]]:
    """Return the environment that each host printed, by slice and host."""
    found = [json.loads(line) for line in lines_of(out)]
    return {(int(env["FRAY_SLICE"]), int(env["FRAY_HOST"])): env for env in found}


def test_every_host_of_two_slices_learns_its_place_and_the_common_addresses(fray: Fray) -> None:
    job = job_manifest("python", "-c", *PRINT_ENVIRONMENT, replicas=2, tpu="v5p-16")
    result = fray.run_job(job)
    assert result.code == 0, result.err
    hosts = environments(result.out)
    assert sorted(hosts) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for (slice_index, host), env in hosts.items():
        assert env["FRAY_NUM_SLICES"] == env["FRAY_HOSTS_PER_SLICE"] == "2"
        assert env["TPU_WORKER_ID"] == env["JOB_COMPLETION_INDEX"] == str(host)
        assert env["MEGASCALE_SLICE_ID"] == env["JOB_INDEX"] == str(slice_index)
        assert env["TPU_WORKER_HOSTNAMES"] == "127.0.0.1,127.0.0.1"
        assert env["MEGASCALE_COORDINATOR_ADDRESS"] == "127.0.0.1"
    assert len({env["FRAY_COORDINATOR_ADDRESS"] for env in hosts.values()}) == 1
    assert hosts[0, 0]["FRAY_COORDINATOR_ADDRESS"].startswith("127.0.0.1:")
    assert hosts[0, 0]["MEGASCALE_PORT"] != hosts[0, 0]["FRAY_COORDINATOR_ADDRESS"].partition(":")[2]


def test_copies_on_cpu_are_one_slice_with_torch_and_jax_variables(fray: Fray) -> None:
    result = fray.run_job(job_manifest("python", "-c", *PRINT_ENVIRONMENT, replicas=3))
    hosts = environments(result.out)
    assert sorted(hosts) == [(0, 0), (0, 1), (0, 2)]
    assert [hosts[0, rank]["RANK"] for rank in range(3)] == ["0", "1", "2"]
    assert {env["WORLD_SIZE"] for env in hosts.values()} == {"3"}
    assert {env["MASTER_ADDR"] for env in hosts.values()} == {"127.0.0.1"}
    assert {env["JAX_COORDINATOR_ADDRESS"] for env in hosts.values()} == {
        env["FRAY_COORDINATOR_ADDRESS"] for env in hosts.values()
    }


def test_processes_start_in_the_folder_of_the_job_file_or_where_workdir_says(fray: Fray) -> None:
    job = job_manifest("pwd")
    other = fray.folder / "other"
    other.mkdir()
    assert list(lines_of(fray.run_job(job).out)) == [str(fray.folder)]
    assert list(lines_of(fray.run_job(job, "--workdir", str(other)).out)) == [str(other)]


def test_a_job_from_standard_input_starts_in_the_working_directory(fray: Fray) -> None:
    result = fray.run("run", "-f", "-", stdin=json.dumps(job_manifest("pwd")).encode())
    assert (result.code, list(lines_of(result.out))) == (0, [str(fray.folder)])


def test_processes_inherit_the_users_environment_but_not_an_outer_jobs_place(fray: Fray) -> None:
    outer = {
        "FRAY_SLICE": "7",
        "RANK": "9",
        "MEGASCALE_SLICE_ID": "4",
        "MINE": "kept",
        "JOBLIB_CACHE": "kept",
    }
    job = job_manifest("python", "-c", *PRINT_ENVIRONMENT, tpu="v5litepod-4")
    (env,) = environments(fray.run_job(job, env=outer).out).values()
    assert (env["FRAY_SLICE"], env["MINE"], env["JOBLIB_CACHE"]) == ("0", "kept", "kept")
    assert "RANK" not in env
    assert env["MEGASCALE_SLICE_ID"] == ""


def test_the_podtemplates_env_and_args_count_here_too(fray: Fray) -> None:
    container = {
        "name": "main",
        "args": ["$(WHO) in $(FRAY_JOB_NAME)"],
        "env": [
            {"name": "WHO", "value": "me"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }
    job = job_manifest("sh", "-c", 'echo "$0 $POD"', podTemplate={"spec": {"containers": [container]}})
    assert list(lines_of(fray.run_job(job).out)) == ["me in job job-a1-slice-0-0"]


def test_one_failing_rank_ends_all_and_is_named_with_its_last_lines(fray: Fray) -> None:
    script = 'if [ "$FRAY_SLICE$FRAY_HOST" = 10 ]; then echo "no more disk"; exit 7; fi; sleep 300'
    result = fray.run_job(job_manifest(script, replicas=2, tpu="v5p-16"))
    assert result.code == 7
    assert "Failed after" in result.err
    assert "rank 2 (slice 1, host 0) exited with code 7" in result.err
    assert "    no more disk" in result.err
    assert "next: fray logs job --attempt 1 --rank 2" in result.err
    status = fray.status("job")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "NonZeroExit")
    assert status["replicas"]["failed"] == 4
    assert status["replicas"]["running"] == 0


def test_an_attempt_is_retried_within_the_budget(fray: Fray) -> None:
    script = "echo $FRAY_ATTEMPT; [ $FRAY_ATTEMPT = 3 ]"
    result = fray.run_job(job_manifest(script, retries={"failures": 2}))
    assert result.code == 0, result.err
    assert list(lines_of(result.out)) == ["1", "2", "3"]
    assert "attempt 3 follows (retry 2 of 2)" in result.err
    verdicts = [attempt["verdict"] for attempt in fray.status("job")["status"]["attempts"]]
    assert verdicts == ["Failure", "Failure", "Success"]


def test_an_exhausted_budget_fails_with_the_last_attempts_code(fray: Fray) -> None:
    result = fray.run_job(job_manifest("exit $((40 + FRAY_ATTEMPT))", retries={"failures": 1}))
    assert result.code == 42
    assert "1 of 1 retries for failures used" in result.err


def test_a_process_killed_by_a_signal_counts_as_128_plus_its_number(fray: Fray) -> None:
    # $$ stands for one dollar sign, as in a pod.
    result = fray.run_job(job_manifest("kill -SEGV $$$$"))
    assert result.code == 128 + 11
    assert "SIGSEGV" in result.err


@pytest.mark.parametrize(
    ("timeouts", "reason"),
    [({"activeSeconds": 1}, "ActiveTimeout"), ({"totalSeconds": 1}, "TotalTimeout")],
)
def test_a_job_that_takes_too_long_is_ended_with_exit_code_124(
    fray: Fray, timeouts: dict[str, int], reason: str
) -> None:
    result = fray.run_job(job_manifest("sleep 300", replicas=2, timeouts=timeouts))
    assert result.code == 124
    assert reason in result.err
    assert fray.status("job")["status"]["reason"] == reason


def test_the_total_timeout_ends_a_pause_between_attempts(fray: Fray) -> None:
    job = job_manifest("exit 1", retries={"failures": 5}, timeouts={"totalSeconds": 1})
    result = fray.run_job(job, env={"FRAY_BACKOFF_SECONDS": "60"})
    assert result.code == 124
    assert fray.status("job")["status"]["attempt"] == 1


def test_setup_commands_run_first_and_the_first_that_fails_ends_the_attempt(fray: Fray) -> None:
    good = job_manifest("echo main", environment={"setup": ["echo one", "echo two"]})
    assert list(lines_of(fray.run_job(good).out)) == ["one", "two", "main"]
    bad = job_manifest("echo main", environment={"setup": ["echo one", "exit 9", "echo two"]})
    result = fray.run_job(bad)
    assert (result.code, list(lines_of(result.out))) == (9, ["one"])
