"""A pod gets its workspace and its packages before its entrypoint, or says what is wrong with them."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import fray
from fray.cluster.workspace import Archiver, WorkspaceLimits
from fray.payload.chunks import split_payload
from fray.runtime import preparation
from fray.termination import Ending, TerminationMessage

UV = Path(sys.executable).parent / "uv"
SURROUNDINGS = ("FRAY_", "PYTHON", "UV_", "PIP_", "VIRTUAL_ENV")
SHOW = "import os, tiny; print(tiny.TELL, os.getcwd(), os.environ['PWD'])"


def write_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A package with one module, as pip would download it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"TELL = '{name} {version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in files.items():
            wheel.writestr(each, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"]))
    return path


BACKEND = """
import pathlib, zipfile
METADATA = "Metadata-Version: 2.1\\nName: own\\nVersion: 1\\nProvides-Extra: fast\\n"
METADATA += "Requires-Dist: tiny ; extra == 'fast'\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "own-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as wheel:
        wheel.writestr("own.pth", str(pathlib.Path.cwd() / "src"))
        wheel.writestr("own-1.dist-info/METADATA", METADATA)
        wheel.writestr("own-1.dist-info/WHEEL", WHEEL)
        files = ("own.pth", "own-1.dist-info/METADATA", "own-1.dist-info/WHEEL", "own-1.dist-info/RECORD")
        wheel.writestr("own-1.dist-info/RECORD", "".join(f"{each},,\\n" for each in files))
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "own"
version = "1"
dynamic = ["optional-dependencies"]
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    message: TerminationMessage | None


@dataclass(frozen=True)
class Image:
    """A container of an image with a Python environment of its own, without Fray and without a network."""

    root: Path
    environ: Mapping[str, str]

    @property
    def python(self) -> Path:
        return self.root / "venv" / "bin" / "python3"

    def mount(self, code: Path, *, size: int = 1 << 20) -> list[str]:
        """Mount a workspace as its Secrets are; the options for it."""
        made = Archiver().archive(code, WorkspaceLimits())
        assert made is not None
        for part in split_payload(made.data, secret_name="code", size=size):
            self.put(part.key, part.data)
        return self.options(made.sha256)

    def put(self, name: str, data: bytes) -> None:
        (self.root / "archive").mkdir(exist_ok=True)
        (self.root / "archive" / name).write_bytes(data)

    def options(self, sha256: str) -> list[str]:
        return [
            f"--workspace={self.root / 'archive'}",
            f"--sha256={sha256}",
            f"--into={self.root / 'workspace'}",
        ]

    def start(self, *options: str, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        (self.root / "log").touch()
        return subprocess.Popen(
            [
                *(str(self.python), str(self.root / "injected/fray/runtime/start.py"), "prepare"),
                *options,
                *(f"--termination-log={self.root / 'log'}", "--", *(command or ("python3", "-c", SHOW))),
            ],
            cwd=self.root,
            env=dict(self.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Ended:
        with process:
            out, err = process.communicate(timeout=100)
        message = TerminationMessage.from_json((self.root / "log").read_text())
        return Ended(process.returncode, out, err, message)

    def prepare(self, *options: str, command: tuple[str, ...] = ()) -> Ended:
        return self.end(self.start(*options, command=command))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    assert fray.__file__ is not None
    ignored = shutil.ignore_patterns("__pycache__")
    injected = tmp_path / "injected"
    shutil.copytree(Path(fray.__file__).parent, injected / "fray", ignore=ignored)
    import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415

    shutil.copytree(Path(cloudpickle.__file__).parent, injected / "cloudpickle", ignore=ignored)
    (injected / "uv").symlink_to(UV)
    (tmp_path / "wheels").mkdir()
    making = [str(UV), "venv", "--quiet", "--offline", "--python", sys.executable, str(tmp_path / "venv")]
    subprocess.run(making, check=True)
    outside = {name: value for name, value in os.environ.items() if not name.startswith(SURROUNDINGS)}
    environ = {
        **outside,
        "PATH": f"{tmp_path / 'venv/bin'}:{os.environ['PATH']}",
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(tmp_path / "wheels"),
    }
    return Image(tmp_path, environ)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A workspace with a program and a wheel in it."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SHOW)
    write_wheel(folder / "wheels", "tiny")
    return folder


def test_a_workspace_is_unpacked_where_the_program_starts_and_packages_may_lie_in_it(
    image: Image, code: Path
) -> None:
    options = image.mount(code, size=300)
    assert len(list((image.root / "archive").iterdir())) > 1
    package = "--package=./wheels/tiny-1.0-py3-none-any.whl"
    ended = image.prepare(*options, package, command=("python3", "train.py"))
    workspace = image.root / "workspace"
    assert (ended.code, ended.out) == (0, f"tiny 1.0 {workspace} {workspace}\n"), ended.err
    assert "fray: installing ./wheels/tiny-1.0-py3-none-any.whl" in ended.err
    assert ended.message is None


def test_packages_alone_need_no_workspace_and_the_image_keeps_its_own(image: Image) -> None:
    wheel = write_wheel(image.root / "own", "six")
    command = [str(UV), "pip", "install", "-q", "--python", str(image.python), "--offline", str(wheel)]
    subprocess.run(command, check=True)
    write_wheel(image.root / "wheels", "tiny", "2.5")
    write_wheel(image.root / "wheels", "six", "2.0")
    show = ("python3", "-c", "import tiny, six; print(tiny.TELL, six.TELL)")
    ended = image.prepare("--package=tiny>=2", "--package=six", command=show)
    assert (ended.code, ended.out) == (0, "tiny 2.5 six 1.0\n"), ended.err


def test_a_program_is_offered_fray_where_its_image_has_none(image: Image) -> None:
    show = ("python3", "-c", "import cloudpickle, fray; print(fray.__file__)")
    ended = image.prepare("--offer-fray", command=show)
    assert (ended.code, ended.out) == (0, f"{image.root}/injected/fray/__init__.py\n"), ended.err
    write_wheel(image.root / "wheels", "fray", "9.0")
    own = ("python3", "-c", "import os, fray; print(fray.TELL, 'PYTHONPATH' in os.environ)")
    ended = image.prepare("--offer-fray", "--package=fray", command=own)
    assert (ended.code, ended.out) == (0, "fray 9.0 False\n"), ended.err


def test_variables_in_packages_are_those_of_the_container(image: Image) -> None:
    write_wheel(image.root / "elsewhere", "tiny")
    told = Image(image.root, {**image.environ, "TOKEN": "elsewhere"})
    ended = told.prepare("--package=./${TOKEN}/tiny-1.0-py3-none-any.whl", command=("python3", "-m", "tiny"))
    assert ended.code == 0, ended.err
    assert "${TOKEN}" in ended.err.splitlines()[0]


def test_extras_are_those_of_the_project_in_the_workspace(image: Image, code: Path) -> None:
    (code / "pyproject.toml").write_text(PROJECT)
    (code / "backend.py").write_text(BACKEND)
    (code / "src").mkdir()
    (code / "src" / "own.py").write_text("HERE = __file__\n")
    write_wheel(image.root / "wheels", "tiny", "3.0")
    show = ("python3", "-c", "import own, tiny; print(tiny.TELL, own.HERE)")
    ended = image.prepare(*image.mount(code), "--extra=fast", command=show)
    assert (ended.code, ended.out) == (0, f"tiny 3.0 {image.root / 'workspace/src/own.py'}\n"), ended.err


def test_what_was_downloaded_is_kept_on_the_cache_volume(image: Image) -> None:
    write_wheel(image.root / "wheels", "tiny")
    ended = image.prepare("--package=tiny", f"--cache={image.root / 'cache'}")
    assert ended.code == 0, ended.err
    assert (image.root / "cache" / "uv" / "CACHEDIR.TAG").exists()


def test_an_archive_that_was_changed_is_not_unpacked(image: Image, code: Path) -> None:
    image.mount(code)
    ended = image.prepare(*image.options("ab" * 32))
    assert ended.code == 112
    assert ended.message is not None
    assert (ended.message.ending, ended.message.type) == (Ending.NEVER_RAN, "WorkspaceChangedError")
    assert "not abababab" in ended.message.message
    assert ended.message.message in ended.err
    assert not (image.root / "workspace").exists()


def test_an_archive_that_isnt_there_is_told(image: Image) -> None:
    ended = image.prepare(*image.options("ab" * 32))
    assert ended.code == 112
    assert ended.message is not None
    assert f"workspace at {image.root / 'archive'}: No such file or directory" in ended.message.message


def test_a_url_needs_fsspec_in_the_image(image: Image) -> None:
    place = ["--workspace=gs://user:secret@bucket/code", f"--sha256={'ab' * 32}", "--into=workspace"]
    ended = image.prepare(*place)
    assert ended.code == 112
    assert ended.message is not None
    assert "No module named 'fsspec'" in ended.message.message
    assert "secret" not in ended.err + ended.message.message


def tarred(*members: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return packed.getvalue()


def member(name: str, **parts: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = 1 if not parts else 0
    for each, value in parts.items():
        setattr(made, each, value)
    return made


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no tar",
        tarred(member("a"), member("b"))[:-30],
        tarred(member("../../outside")),
        tarred(member("link", type=tarfile.SYMTYPE, linkname="/etc")),
        tarred(member("device", type=tarfile.CHRTYPE)),
    ],
    ids=["empty", "no-tar", "cut", "outside", "link", "device"],
)
def test_what_is_no_archive_of_files_is_refused(image: Image, data: bytes) -> None:
    image.put("code.tar.gz", data)
    ended = image.prepare(*image.options(hashlib.sha256(data).hexdigest()))
    assert ended.code == 112
    assert ended.message is not None
    assert ended.message.type == "WorkspaceUnreadableError"
    assert not (image.root.parent / "outside").exists()


def test_a_secret_that_somebody_made_by_hand_has_any_one_key(image: Image) -> None:
    data = tarred(member("a"))
    image.put("code.tar.gz", data)
    (image.root / "archive" / "..data").mkdir()
    ended = image.prepare(*image.options(hashlib.sha256(data).hexdigest()), command=("cat", "a"))
    assert (ended.code, ended.out) == (0, "x"), ended.err


def test_a_package_that_cant_be_found_is_told_in_uvs_words(image: Image) -> None:
    ended = image.prepare("--package=no-such-package==7")
    assert ended.code == 113
    assert ended.message is not None
    assert (ended.message.ending, ended.message.type) == (Ending.NEVER_RAN, "PackagesNotInstalledError")
    assert ended.message.message.startswith("no-such-package==7 can't be installed:\n")
    assert "no-such-package was not found" in ended.message.message
    assert ended.out == ""


def test_extras_of_what_is_no_project_are_told(image: Image, code: Path) -> None:
    ended = image.prepare(*image.mount(code), "--extra=tpu")
    assert ended.code == 113
    assert ended.message is not None
    assert ".[tpu] can't be installed" in ended.message.message


def test_an_image_whose_python_cant_be_written_to_is_told_the_two_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As root may write everywhere, the system's answer is replaced.
    (tmp_path / "log").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    options = ["--package=tiny", "--uv=/does/not/exist", f"--termination-log={tmp_path / 'log'}"]
    assert preparation.main([*options, "--", "true"]) == 113
    told = TerminationMessage.from_json((tmp_path / "log").read_text())
    assert told is not None
    assert told.type == "PythonNotWritableError"
    assert f"user {os.getuid()} can't write to" in told.message
    assert "Install them in the image, or let the image's user own" in told.message


def test_the_program_takes_over_as_if_it_had_been_first(image: Image) -> None:
    show = "import os, signal, sys; print(os.getpid(), sys.argv[1:], signal.getsignal(signal.SIGTERM).name)"
    shell = 'python3 -c "$1" "$@"; grep SigIgn /proc/self/status'
    process = image.start(command=("sh", "-c", f"echo $$; {shell}", "sh", show, "--", "-x", "--package"))
    pid = process.pid
    ended = image.end(process)
    first, second, ignored = ended.out.splitlines()
    assert int(first) == pid
    assert "['" in second
    assert "'--', '-x', '--package'] SIG_DFL" in second
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/", 126)])
def test_a_program_that_cant_be_started_is_told_as_by_a_shell(image: Image, command: str, code: int) -> None:
    ended = image.prepare(command=(command,))
    assert ended.code == code
    assert f"fray: {command}: " in ended.err


def test_the_brought_fray_prepares_whatever_the_image_has_under_its_name(image: Image) -> None:
    other = image.root / "other" / "fray"
    (other / "runtime").mkdir(parents=True)
    (other / "runtime" / "callable_runner.py").touch()
    (other / "__init__.py").write_text("raise RuntimeError('an older one')")
    told = Image(image.root, {**image.environ, "PYTHONPATH": str(other.parent)})
    ended = told.prepare(command=("echo", "ran"))
    assert (ended.code, ended.out) == (0, "ran\n"), ended.err


def test_sigterm_ends_an_installation(image: Image) -> None:
    slow = image.root / "slow"
    slow.mkdir()
    begun = image.root / "begun"
    (slow / "pyproject.toml").write_text(PROJECT)
    waiting = "while os.getppid() == parent: time.sleep(0.05)"
    build = f"def build_wheel(*_):\n parent = os.getppid()\n open({str(begun)!r}, 'w').close()\n {waiting}\n"
    (slow / "backend.py").write_text(f"import os, time\n{build}")
    process = image.start("--package=./slow")
    deadline = time.monotonic() + 100
    while not begun.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    ended = image.end(process)
    assert ended.code == 143, ended.err
    assert ended.out == ""
