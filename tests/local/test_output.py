"""What processes print arrives whole and in order, whatever it is and whichever program reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.harness import Fray, job_manifest, lines_of, wait_for

MANY_LINES = "for n in range(10000): print(f'line {n}')"


def test_10000_lines_of_each_host_arrive_in_order_and_none_is_lost(fray: Fray) -> None:
    result = fray.run_job(job_manifest("python", "-c", MANY_LINES, replicas=2))
    assert result.code == 0
    for host in (0, 1):
        own = [line for line in result.out.splitlines() if line.startswith(f"[0/{host}] ")]
        assert own == [f"[0/{host}] line {number}" for number in range(10000)]
    assert fray.raw_log("job", host=1).decode() == "".join(f"line {number}\n" for number in range(10000))


def test_logs_shows_the_same_lines_in_the_same_order_afterwards(fray: Fray) -> None:
    live = fray.run_job(job_manifest("python", "-c", MANY_LINES, replicas=2)).out
    assert fray.run("logs", "job").out == live
    assert fray.run("logs", "job", "--tail", "10").out.splitlines() == live.splitlines()[-10:]
    one = fray.run("logs", "job", "--rank", "1").out.splitlines()
    assert one == [f"[0/1] line {number}" for number in range(10000)]


def test_a_last_line_without_newline_is_shown_as_a_line(fray: Fray) -> None:
    result = fray.run_job(job_manifest("printf 'first\\nlast'"))
    assert result.out == "[0/0] first\n[0/0] last\n"
    assert fray.raw_log("job") == b"first\nlast"


def test_bytes_that_are_no_utf8_are_shown_replaced_and_kept_raw(fray: Fray) -> None:
    result = fray.run_job(job_manifest(r"printf 'caf\351 \377\n'; printf 'na\303\257ve\n'"))
    assert result.out == "[0/0] caf\ufffd \ufffd\n[0/0] naïve\n"
    assert fray.raw_log("job").startswith(b"caf\xe9 \xff\n")


def test_a_line_of_a_megabyte_is_whole(fray: Fray) -> None:
    program = "print('x' * 2**20 + 'end'); print('after')"
    result = fray.run_job(job_manifest("python", "-c", program))
    assert result.out == f"[0/0] {'x' * 2**20}end\n[0/0] after\n"


def test_standard_error_and_output_of_a_process_keep_their_order(fray: Fray) -> None:
    result = fray.run_job(job_manifest("echo one; echo two >&2; echo three"))
    assert list(lines_of(result.out)) == ["one", "two", "three"]


def test_what_fray_says_goes_to_standard_error_only(fray: Fray) -> None:
    result = fray.run_job(job_manifest("true"))
    assert result.out == ""
    assert "job: attempt 1: 1/1 hosts running" in result.err
    assert "job: Succeeded in" in result.err
    assert "\x1b" not in result.err


def test_python_prints_are_seen_while_the_process_runs(fray: Fray) -> None:
    program = "import time; print('now'); time.sleep(300)"
    process = fray.start("run", "-f", fray.write_job(job_manifest("python", "-c", program)))
    assert process.stdout is not None
    assert process.stdout.readline() == b"[0/0] now\n"


def test_a_reader_that_goes_away_ends_the_job(fray: Fray) -> None:
    job = job_manifest("while :; do echo again; sleep 0.01; done", retries={"failures": 3})
    process = fray.start("run", "-f", fray.write_job(job))
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert fray.stored("job")["status"]["phase"] == "Stopped"
    assert not fray.processes()


def test_a_reader_of_standard_error_that_goes_away_ends_the_job(fray: Fray) -> None:
    job = job_manifest("sleep 0.3; [ $FRAY_ATTEMPT = 9 ]", retries={"failures": 9})
    process = fray.start("run", "-f", fray.write_job(job))
    assert process.stderr is not None
    assert process.stderr.readline()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert not fray.processes()


def test_head_gets_its_line_and_the_pipeline_ends(fray: Fray) -> None:
    path = fray.write_job(job_manifest("while :; do echo again; sleep 0.01; done"))
    pipeline = f"{sys.executable} -m fray.cli run -f {path} | head -1"
    result = subprocess.run(
        ["sh", "-c", pipeline],
        env=fray.environ(),
        cwd=fray.folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.stdout == b"[0/0] again\n"
    fray.wait_gone()


def test_a_reader_that_reads_no_more_ends_a_command_as_sigpipe_does(fray: Fray) -> None:
    assert fray.run_job(job_manifest("echo a line")).code == 0
    commands = ("logs job", "logs -f job", "status job", "list", "explain job", "doctor", "--help", "logs -h")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ends = {command: fray.finish(fray.start(*command.split(), stdout=writer)) for command in commands}
    finally:
        os.close(writer)
    assert {command: (end.code, end.err) for command, end in ends.items()} == dict.fromkeys(
        commands, (141, "")
    )


def test_an_error_that_nobody_reads_ends_a_command_as_sigpipe_does(fray: Fray) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert fray.finish(fray.start("logs", "nosuch", stderr=writer)).code == 141
    finally:
        os.close(writer)


def test_a_full_disk_behind_standard_output_ends_the_job(fray: Fray) -> None:
    with Path("/dev/full").open("wb") as full:
        process = fray.start("run", "-f", fray.write_job(job_manifest("echo x; sleep 300")), stdout=full)
        assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    assert b"No space left" in process.stderr.read()
    fray.wait_gone()


def test_a_slow_reader_does_not_hold_up_the_job_or_lose_lines(fray: Fray) -> None:
    process = fray.start("run", "-f", fray.write_job(job_manifest("python", "-c", MANY_LINES, replicas=2)))
    wait_for(lambda: fray.stored("job").get("status", {}).get("phase") == "Succeeded", "the job's end")
    assert process.poll() is None, "more is printed than a pipe holds, and nobody has read it"
    result = fray.finish(process)
    assert len(result.out.splitlines()) == 20000


def test_output_that_nobody_reads_does_not_fill_the_memory(fray: Fray) -> None:
    script = "yes 'a line of text that is printed again and again' | head -c 100000000"
    process = fray.start("run", "-f", fray.write_job(job_manifest(script)))
    wait_for(lambda: fray.stored("job").get("status", {}).get("phase") == "Succeeded", "the job's end")
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")]
    assert peak < 90_000, f"{peak} kB for 100 MB of output"
    assert len(fray.raw_log("job")) == 100_000_000
    process.terminate()
    assert fray.finish(process).code == 0, "the job itself had succeeded"


def test_closed_standard_streams_do_no_harm(fray: Fray) -> None:
    path = fray.write_job(job_manifest("echo hello; cat; echo $?"))
    command = f"exec {sys.executable} -m fray.cli run -f {path} <&- >&- 2>&-"
    result = subprocess.run(
        ["sh", "-c", command], env=fray.environ(), cwd=fray.folder, timeout=60, check=False
    )
    assert result.returncode == 0
    assert fray.raw_log("job") == b"hello\n0\n"
    assert fray.stored("job")["status"]["phase"] == "Succeeded"


def test_an_ascii_only_locale_still_shows_every_line(fray: Fray) -> None:
    result = fray.run_job(job_manifest(r"printf 'na\303\257ve\n'"), env={"PYTHONIOENCODING": "ascii"})
    assert result.out == "[0/0] na?ve\n"


def test_output_of_a_process_that_was_left_behind_does_not_hold_up_the_end(fray: Fray) -> None:
    result = fray.run_job(job_manifest("setsid sleep 300 & echo done"))
    assert (result.code, result.out) == (0, "[0/0] done\n")
    assert not fray.processes()


def test_logs_of_each_attempt_and_slice_can_be_chosen(fray: Fray) -> None:
    script = "echo a$FRAY_ATTEMPT s$FRAY_SLICE h$FRAY_HOST; [ $FRAY_ATTEMPT = 2 ] || { sleep 0.3; exit 1; }"
    fray.run_job(job_manifest(script, replicas=2, tpu="v5p-16", retries={"failures": 1}))
    assert fray.run("logs", "job", "--slice", "1", "--host", "0").out == "[1/0] a2 s1 h0\n"
    first = fray.run("logs", "job", "--attempt", "1", "--rank", "3")
    assert first.out in ("[1/1] a1 s1 h1\n", ""), "it may have been ended before it printed"
    stamped = fray.run("logs", "job", "--rank", "0", "--timestamps").out
    assert stamped.endswith("Z [0/0] a2 s0 h0\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "2"], "has no rank 2"),
        (["--slice", "1"], "has no slice 1"),
        (["--attempt", "2"], "has no logs of attempt 2"),
    ],
)
def test_logs_that_do_not_exist_are_refused_with_those_that_do(
    fray: Fray, options: list[str], message: str
) -> None:
    fray.run_job(job_manifest("true", replicas=2))
    result = fray.run("logs", "job", *options)
    assert result.code == 2
    assert message in result.err
    assert "There are: " in result.err


def test_the_logs_of_the_last_ten_attempts_are_kept(fray: Fray) -> None:
    job = job_manifest("echo $FRAY_ATTEMPT; [ $FRAY_ATTEMPT = 12 ]", retries={"failures": 11})
    assert fray.run_job(job, env={"FRAY_BACKOFF_SECONDS": "0"}).code == 0
    kept = {entry.name for entry in (fray.state / "jobs" / "job" / "logs").iterdir()}
    assert kept == {f"attempt-{number}" for number in range(3, 13)}
    assert not list((fray.state / "ports").iterdir()), "ports are given back"
