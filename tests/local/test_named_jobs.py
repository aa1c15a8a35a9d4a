"""Jobs that the command line describes, here: programs, functions, and waiting from another shell."""

from __future__ import annotations

import json

from tests.local.harness import Fray, job_manifest, running_job


def test_a_program_is_run_on_each_host(fray: Fray) -> None:
    said = fray.folder / "said"
    # The one that fails ends the other one, which must have said its line by then.
    script = (
        f"echo $FRAY_HOST $MODE; test $FRAY_HOST = 1 || touch {said}; "
        f"until test -e {said}; do sleep 0.1; done; exit $((FRAY_HOST * 5))"
    )
    ended = fray.run("run", "--replicas", "2", "-e", "MODE=fast", "--name", "two", "--", "sh", "-c", script)
    assert ended.code == 5, ended
    assert sorted(ended.out.splitlines()) == ["[0/0] 0 fast", "[0/1] 1 fast"]
    assert fray.run("wait", "two").code == 5
    assert fray.run("status", "two").out.startswith("two   Failed   NonZeroExit\n")


def test_a_file_is_run_with_what_the_command_line_says_instead(fray: Fray) -> None:
    manifest = job_manifest("echo $MODE $FRAY_ATTEMPT; exit 5", replicas=2, retries={"failures": 3})
    options = ("--replicas", "1", "--retries", "0", "-e", "MODE=fast")
    ended = fray.run("run", "-f", fray.write_job(manifest), *options)
    assert (ended.code, ended.out) == (5, "[0/0] fast 1\n"), ended
    told = "job: instead of what the file says: retries.failures 0; replicas 1; env MODE\n"
    assert ended.err.startswith(told)
    assert fray.stored("job")["spec"]["retries"]["failures"] == 0


def test_a_function_of_the_current_directory_is_called(fray: Fray) -> None:
    (fray.folder / "training.py").write_text(
        "import helper\n"
        "def main(*words):\n    print(helper.join(words))\n"
        "def bad():\n    raise KeyError('x')\n"
    )
    (fray.folder / "helper.py").write_text("def join(words):\n    return '+'.join(words)\n")
    ended = fray.run("run", "training:main", "a", "--b")
    assert (ended.code, ended.out) == (0, "[0/0] a+--b\n"), ended
    failed = fray.run("run", "training:bad")
    assert failed.code == 1
    assert "KeyError: 'x'" in failed.err


def test_processes_start_in_the_workspace_that_a_file_names(fray: Fray) -> None:
    (fray.folder / "code").mkdir()
    (fray.folder / "code" / "train.py").write_text("print('trained')\n")
    file = fray.folder / "frayjob.json"
    file.write_text(json.dumps(job_manifest("python3 train.py", environment={"workspace": "code"})))
    ended = fray.run("run", "-f", str(file))
    assert (ended.code, ended.out) == (0, "[0/0] trained\n"), ended
    file.write_text(json.dumps(job_manifest("true", environment={"workspace": "nowhere"})))
    refused = fray.run("run", "-f", str(file))
    assert refused.code == 2
    assert refused.err.startswith(
        f"error: spec.environment.workspace: {fray.folder}/nowhere is no directory\n"
    ), refused
    assert fray.run("doctor", "-f", str(file)).code == 0


def test_a_job_is_waited_for_from_another_shell(fray: Fray) -> None:
    gate = fray.folder / "gate"
    job = job_manifest(f"echo here; while ! [ -e {gate} ]; do sleep 0.05; done; exit 4", name="gated")
    running = running_job(fray, job, until="here")
    assert fray.run("wait", "gated", "--timeout", "0").code == 124
    waiting = fray.start("wait", "gated")
    gate.touch()
    assert fray.finish(waiting).code == 4
    assert fray.finish(running).code == 4


def test_doctor_tells_of_this_machine(fray: Fray) -> None:
    sound = fray.run("doctor")
    assert (sound.code, "nothing is wrong" in sound.out) == (0, True)
    (fray.folder / "file").touch()
    broken = fray.run("doctor", env={"FRAY_STATE_DIR": str(fray.folder / "file")})
    assert broken.code == 1
    assert "FRAY_STATE_DIR" in broken.out
    assert "1 wrong" in broken.out


def test_shells_complete_names_of_jobs(fray: Fray) -> None:
    assert fray.run("run", "--name", "train-7b", "--", "true").code == 0
    words = {"COMP_WORDS": "fray status tr", "COMP_CWORD": "2", "_FRAY_COMPLETE": "complete_bash"}
    assert fray.run(env=words).out.split() == ["train-7b"]
