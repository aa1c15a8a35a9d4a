"""A job that the command line itself describes: its name, its hosts, its variables, its function."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.cli.app import app
from fray.cli.job_options import JobOptions
from fray.cli.named_job import build_request, split_target
from fray.cli.run import STOP_SIGNALS, RunCommand, run_job
from fray.cli.streams import OutputStream
from fray.errors import FrayError, InvalidRequestError
from fray.types import JobRequest, TpuConfig


def build(*words: str, **options: object) -> JobRequest:
    return build_request(words, JobOptions(**options), environ={"TOKEN": "t"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["./train_7B.sh", "--fast"], "train-7b-sh"),
        (["python3.12", "src/train.py"], "train"),
        (["python", "-m", "pkg.train", "x"], "pkg-train"),
        (["python", "-c", "print()"], "python"),
        (["---"], "job"),
    ],
)
def test_a_program_gives_the_job_its_name(words: list[str], name: str) -> None:
    request = build(*words)
    assert request.name == name
    entrypoint = request.resolve_entrypoint().binary_entrypoint
    assert entrypoint is not None
    assert list(entrypoint.argv) == words
    assert build(*words, name="own").name == "own"


def test_hosts_are_described_by_options() -> None:
    tpu = build("x", tpu="v5p-16", replicas=2, memory="8g", image="python:3.12").resources
    assert isinstance(tpu.device, TpuConfig)
    assert (tpu.replicas, tpu.ram, tpu.image) == (2, "8g", "python:3.12")
    gpu = build("x", gpu="H100:8", replicas=3).resources
    assert (gpu.device.chip_count(), gpu.replicas) == (8, 3)
    assert build("x", cpu="4", replicas=2).resources.cpu == "4"
    assert build("x", retries=3).max_retries_failure == 3


@pytest.mark.parametrize(
    ("options", "cpu", "ram"),
    [
        ({"gpu": "H100:8"}, 187, "1684G"),
        ({"tpu": "v5p-16"}, 187, "403G"),
        ({"tpu": "v5p-16", "cpu": "4"}, "4", "403G"),
        ({"gpu": "H100:8", "memory": "8g"}, 187, "8g"),
        ({"gpu": "T4"}, 1, "4g"),
        ({"gpu": "auto"}, 1, "4g"),
        ({}, 1, "4g"),
    ],
)
def test_an_accelerator_comes_with_all_that_its_host_is_known_to_have(
    options: dict[str, object], cpu: object, ram: str
) -> None:
    found = build("x", **options).resources
    assert (found.cpu, found.ram) == (cpu, ram)


def test_variables_are_given_or_taken_from_here() -> None:
    environment = build("x", env=("A=b=c", "TOKEN")).environment
    assert environment is not None
    assert (environment.env_vars["A"], environment.env_vars["TOKEN"]) == ("b=c", "t")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tpu": "v5p-16", "gpu": "L4"}, "excludes --gpu"),
        ({"gpu": "L4:two"}, "'two' is no number"),
        ({"gpu": "H100:0"}, "^--gpu: is 'H100:0', whose count is 0\n.*from 1 to 16"),
        ({"env": ("NOPE",)}, "isn't set here"),
        ({"tpu": "v5p-17"}, "v5p-16"),
        ({"replicas": 0}, "replicas"),
        ({"memory": "much"}, "much"),
        ({"name": "two words"}, "spaces"),
        ({"name": "two words"}, "^--name: "),
        ({"cpu": "many"}, "^--cpu: "),
        ({"memory": "much"}, "^--memory: "),
        ({"env": ("A B=1",)}, "^--env: names 'A B'"),
        ({"timeout": "soon"}, "^--timeout: is 'soon'"),
        ({"timeout": "600000h"}, "^--timeout: is 2160000000"),
        ({"disk": "much"}, "^--disk: "),
        ({"queue": ""}, "^--queue: "),
        ({"pip": ("numpy", " ")}, "^--pip: is empty"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(FrayError, match=told):
        build("x", **options)


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("train:main", ("train", "main")),
        ("pkg.train:Trainer.run", ("pkg.train", "Trainer.run")),
        ("train.py", None),
        ("http://x:80", None),
        ("a:b:c", None),
        ("1:2", None),
    ],
)
def test_a_function_is_told_from_a_program(word: str, target: tuple[str, str] | None) -> None:
    assert split_target(word) == target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_function_is_imported_from_here(folder: Path) -> None:
    (folder / "told_fn.py").write_text("class T:\n    @staticmethod\n    def run(*a):\n        return a\n")
    entrypoint = build("told_fn:T.run", "1", "2").resolve_entrypoint()
    assert entrypoint.callable is not None
    assert entrypoint.callable(*entrypoint.args) == ("1", "2")


@pytest.mark.parametrize(
    ("content", "target", "told"),
    [
        (None, "told_no:main", "there is no module 'told_no'"),
        ("import told_missing", "told_a:main", "needs the module 'told_missing'"),
        ("1 / 0", "told_b:main", "can't be imported: ZeroDivisionError"),
        ("def train(): pass", "told_c:main", "It has: train"),
        ("main = 5", "told_d:main", "of type int"),
    ],
)
def test_a_function_that_can_not_be_had_is_told(
    folder: Path, content: str | None, target: str, told: str
) -> None:
    if content is not None:
        (folder / f"{target.partition(':')[0]}.py").write_text(content)
    with pytest.raises(InvalidRequestError, match=told):
        build(target)


@pytest.mark.parametrize(
    ("words", "file", "options", "more", "told"),
    [
        ((), None, {}, {}, "names nothing to run"),
        (("train",), "job.yaml", {}, {}, "has a file and also 'train'"),
        ((), "job.yaml", {"tpu": "v5p-8", "cpu": "2", "retries": 1}, {}, "has a file and also --tpu, --cpu"),
        (
            (),
            "job.yaml",
            {"disk": "1g", "spot": False, "queue": "q", "pip": ("x",)},
            {},
            "has a file and also --disk, --no-spot, --queue, --pip",
        ),
        ((), "job.yaml", {"spot": True}, {}, "has a file and also --spot"),
        (("train",), None, {}, {"detach": True}, "needs a cluster"),
        (("train",), None, {}, {"namespace": "ml"}, "has no namespaces"),
        (
            ("train",),
            None,
            {},
            {"cluster": "k8s", "working_dir": Path("/")},
            "is a directory of this machine",
        ),
        (("train",), None, {}, {"cluster": "iris"}, "not available"),
        (("train",), None, {}, {"cluster": "k9s"}, "Unknown cluster spec"),
    ],
)
def test_what_contradicts_itself_is_refused(
    words: tuple[str, ...],
    file: str | None,
    options: dict[str, object],
    more: dict[str, object],
    told: str,
    tmp_path: Path,
) -> None:
    command = RunCommand(words, file, JobOptions(**options), **more)  # type: ignore[arg-type]
    stream = OutputStream(1, environ={})
    environ = {"FRAY_STATE_DIR": str(tmp_path)}
    with pytest.raises(FrayError, match=told), (tmp_path / "empty").open("wb+") as stdin:
        run_job(command, environ=environ, stdin=stdin, output=stream, notes=stream)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Handle signals after the test as before it: the command goes on until its process ends."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("words", "options", "told"),
    [
        (("true",), {"pip": ("fray-has-none-such",)}, r"^--pip \['fray-has-none-such'\] is not supported"),
        (("true",), {"queue": "A b"}, "--queue: 'A b' must match"),
        (("./train.py",), {}, r"^\./train\.py: there is no such file \(working directory /"),
        (("nowhere/train.sh", "-x"), {}, "^nowhere/train.sh: there is no such file"),
        (("/nowhere/train",), {}, "^/nowhere/train: there is no such file"),
    ],
)
def test_what_this_machine_lacks_is_refused_by_what_was_typed_and_nothing_starts(
    folder: Path, words: tuple[str, ...], options: dict[str, object], told: str
) -> None:
    stream = OutputStream(1, environ={})
    command = RunCommand(words, None, JobOptions(**options))  # type: ignore[arg-type]
    environ = {"FRAY_STATE_DIR": str(folder / "state"), "PATH": "/usr/bin:/bin"}
    with pytest.raises(FrayError, match=told), (folder / "empty").open("wb+") as stdin:
        run_job(command, environ=environ, stdin=stdin, output=stream, notes=stream)
    assert not list((folder / "state").rglob("job.json"))


def test_paths_of_programs_are_those_of_the_directory_where_they_start(folder: Path) -> None:
    (folder / "there").touch()
    for word in ("./there", str(folder / "there")):
        request = build_request([word], JobOptions(), environ={}, directory=folder)
        assert request.name.endswith("there")
    with pytest.raises(InvalidRequestError, match="no such file"):
        build_request(["./there"], JobOptions(), environ={}, directory=folder / "elsewhere")


@pytest.mark.parametrize(
    ("word", "there", "told", "remedy"),
    [
        ("fail.yaml", True, "is a file, and no program", "`fray run -f fail.yaml`"),
        ("fail.yml", False, "there is no such file in", "`fray run -f FILE`"),
        ("train.py", False, "there is no such file in", "`fray run -- python train.py`"),
        ("python train.py", False, "is a line of a shell", "`fray run -- python train.py`"),
    ],
)
def test_a_file_is_not_taken_for_a_program(
    folder: Path, word: str, *, there: bool, told: str, remedy: str
) -> None:
    if there:
        (folder / word).write_text("kind: FrayJob")
    with pytest.raises(InvalidRequestError, match=told) as caught:
        build(word)
    assert remedy in caught.value.next_step
    assert word in caught.value.message


def test_a_script_that_is_no_program_is_refused_with_what_to_write(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text("#!/bin/sh\n")
    for word in ("train.py", "./train.py", str(script)):
        with pytest.raises(InvalidRequestError, match="no program") as caught:
            build(word, "--lr", "1 2")
        assert f"`fray run -- python {word} --lr '1 2'`" in caught.value.next_step
    assert build("python", "train.py").name == "train"
    assert build("/app/elsewhere.py").name == "elsewhere-py", "an image may have it"
    script.chmod(0o755)
    assert build("./train.py").name == "train-py"
    with pytest.raises(InvalidRequestError, match="no program"):
        build("train.py")
    assert build_request(["train.py"], JobOptions(), environ={"PATH": str(folder)}).name == "train-py"


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--cluster", "k8s"], "--cluster"),
        (["--cluster=k8s"], "--cluster"),
        (["1", "-n", "ml"], "-n"),
        (["--name", "x"], "--name"),
    ],
    ids=str,
)
def test_own_options_behind_a_function_are_refused(command: str, words: list[str], option: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{option}: stands behind told:main") as caught:
        app([command, "told:main", *words], standalone_mode=False)
    assert f"`fray {command} {option} ... told:main`" in caught.value.next_step
    assert f"`fray {command} -- told:main {' '.join(words)}`" in caught.value.next_step


@pytest.mark.parametrize(
    "words",
    [
        ["--", "told_late:main", "--cluster", "k8s"],
        ["told_late:main", "--", "--cluster", "k8s"],
        ["told_late:main", "--lr", "3", "-1", "--help", "cluster"],
        ["--", "python", "train.py", "--name", "x"],
    ],
    ids=" ".join,
)
def test_other_options_are_for_the_program_that_they_stand_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (folder / "told_late.py").write_text("def main(*words):\n    pass\n")
    monkeypatch.delenv("FRAY_CLUSTER_SPEC", raising=False)
    app(["explain", *words], standalone_mode=False)
    assert "kind: FrayJob" in capfd.readouterr().out
