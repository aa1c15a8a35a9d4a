"""Why a command didn't start is told in words that say what to do, with a shell's exit code."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fray.cluster.local.environment import derive_base_environment
from fray.cluster.local.host import HostTask, describe_start_failure
from fray.cluster.local.pods import LocalPod
from fray.cluster.local.ports import FALLBACK, PREFERRED, choose_candidates, read_ephemeral_range


def task(command: str = "train", working_dir: str = "/somewhere") -> HostTask:
    pod = LocalPod(0, 0, 0, "pod", (command,), {}, None, 30.0)
    return HostTask(pod, {"PATH": "/bin"}, working_dir)


@pytest.mark.parametrize(
    ("stage", "number", "code", "words"),
    [
        ("exec", errno.ENOENT, 127, "'train': it is not found on PATH (install it, or write its path)"),
        ("exec", errno.EACCES, 126, "chmod +x"),
        ("exec", errno.ENOEXEC, 126, "#!"),
        ("exec", errno.E2BIG, 126, "longer than the system allows"),
        ("exec", errno.ETXTBSY, 126, "busy"),
        ("chdir", errno.ENOENT, 126, "--workdir"),
        ("chdir", errno.EACCES, 126, "/somewhere can't be entered"),
        ("fork", errno.EAGAIN, 126, "no process could be made"),
    ],
)
def test_each_reason_has_its_words(stage: str, number: int, code: int, words: str) -> None:
    found, message = describe_start_failure({"stage": stage, "errno": number, "problem": "?"}, task())
    assert found == code
    assert words in message


def test_a_problem_without_number_is_told_as_it_is() -> None:
    event = {"stage": "exec", "errno": None, "problem": "embedded null byte"}
    assert describe_start_failure(event, task()) == (126, "cannot start 'train': embedded null byte")


def test_a_script_that_exists_lacks_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("#!/none\n")
    event = {"stage": "exec", "errno": errno.ENOENT, "problem": "?"}
    assert "interpreter" in describe_start_failure(event, task("./train", str(tmp_path)))[1]
    assert "no such file" in describe_start_failure(event, task("./gone", str(tmp_path)))[1]


def test_a_task_is_sent_byte_for_byte_whatever_the_locale() -> None:
    odd = LocalPod(0, 0, 0, "pod", ("naïve", "\udcff"), {}, None, 1.0)
    message = HostTask(odd, {"É": "\udc80"}, "/").to_message()
    assert message.isascii()
    with pytest.raises(ValueError, match="surrogates"):
        HostTask(LocalPod(0, 0, 0, "pod", ("\ud800",), {}, None, 1.0), {}, "/").to_message()


def test_the_base_environment_is_the_users_without_an_outer_jobs_place() -> None:
    outer = {
        "FRAY_SLICE": "1",
        "FRAY_STATE_DIR": "/state",
        "RANK": "3",
        "JOBSET_NAME": "outer",
        "TPU_WORKER_ID": "2",
        "PATH": "/bin",
        "JOB_ID": "slurm's",
        "JAX_PLATFORMS": "cpu",
        "NCCL_DEBUG": "INFO",
    }
    assert derive_base_environment(outer) == {
        "PATH": "/bin",
        "JOB_ID": "slurm's",
        "JAX_PLATFORMS": "cpu",
        "NCCL_DEBUG": "INFO",
        "PYTHONUNBUFFERED": "1",
    }
    assert derive_base_environment({"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""


def test_the_way_to_a_ray_is_the_users_own() -> None:
    ray = {"RAY_ADDRESS": "head:6379", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/token"}
    assert derive_base_environment(ray).items() >= ray.items()


def test_ports_are_chosen_outside_the_ephemeral_range() -> None:
    assert choose_candidates(range(32768, 61000)) == list(PREFERRED)
    assert choose_candidates(range(25000, 61000)) == list(range(20000, 25000))
    assert choose_candidates(range(20000, 65536)) == list(range(1024, 20000))
    assert choose_candidates(FALLBACK) == PREFERRED, "nothing else is left"


def test_the_ephemeral_range_is_the_kernels_or_ianas(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    assert read_ephemeral_range(tmp_path / "range") == range(1024, 65536)
    assert read_ephemeral_range(tmp_path / "none") == range(49152, 65536)
    (tmp_path / "nonsense").write_text("1024")
    assert read_ephemeral_range(tmp_path / "nonsense") == range(49152, 65536)
