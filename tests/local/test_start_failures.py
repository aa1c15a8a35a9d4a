"""A command that can't be started ends the attempt with a shell's exit code and says what to do."""

from __future__ import annotations

import pytest

from tests.local.harness import Fray, job_manifest


def test_a_missing_command_is_127_and_names_where_it_was_looked_for(fray: Fray) -> None:
    result = fray.run_job(job_manifest("no-such-program", "--fast"))
    assert result.code == 127
    assert "rank 0 (slice 0, host 0) could not start: cannot start 'no-such-program'" in result.err
    assert "PATH (" in result.err
    assert fray.status("job")["status"]["reason"] == "StartFailed"


def test_the_jobs_own_path_is_searched(fray: Fray) -> None:
    job = job_manifest("no-such-program", "x", environment={"env": [{"name": "PATH", "value": "/empty"}]})
    assert "not found on the job's PATH, /empty (install it" in fray.run_job(job).err


@pytest.mark.parametrize(
    ("name", "text", "mode", "code", "words"),
    [
        pytest.param("train.sh", "#!/bin/sh\necho never\n", 0o644, 126, "chmod +x", id="no permission"),
        pytest.param("train", "echo never\n", 0o755, 126, "#!", id="no interpreter line"),
        pytest.param("train", "#!/no/such/python\n", 0o755, 127, "interpreter", id="a missing interpreter"),
    ],
)
def test_a_script_that_cant_start_says_why(
    fray: Fray, name: str, text: str, mode: int, code: int, words: str
) -> None:
    script = fray.folder / name
    script.write_text(text)
    script.chmod(mode)
    result = fray.run_job(job_manifest(f"./{name}", "x"))
    assert result.code == code
    assert words in result.err


def test_a_missing_file_is_127_and_names_the_working_directory(fray: Fray) -> None:
    result = fray.run_job(job_manifest("./gone", "x"))
    assert result.code == 127
    assert str(fray.folder) in result.err


def test_a_working_directory_that_is_not_there_names_the_option(fray: Fray) -> None:
    template = {"spec": {"containers": [{"name": "main", "workingDir": "/no/such/dir"}]}}
    result = fray.run_job(job_manifest("true", "x", podTemplate=template))
    assert result.code == 126
    assert "--workdir" in result.err


def test_an_argument_with_a_null_byte_is_refused_in_words(fray: Fray) -> None:
    result = fray.run_job(job_manifest("echo", "a\0b"))
    assert result.code == 126
    assert "null byte" in result.err


def test_one_host_that_cannot_start_ends_the_others(fray: Fray) -> None:
    # Only rank 1 has no such working directory.
    template = {
        "spec": {
            "containers": [
                {"name": "main", "command": ["$(FRAY_HOST)"], "args": []},
            ]
        }
    }
    program = fray.folder / "0"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    job = job_manifest("x", "y", replicas=2, podTemplate=template)
    job["spec"]["environment"] = {"env": [{"name": "PATH", "value": f"{fray.folder}:/usr/bin:/bin"}]}
    result = fray.run_job(job)
    assert result.code == 127
    assert "rank 1 (slice 0, host 1) could not start" in result.err
