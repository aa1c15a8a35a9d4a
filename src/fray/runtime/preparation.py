"""Prepares a pod for its entrypoint: unpacks the workspace, installs packages, and lets it take over.

    python3 .../start.py prepare --workspace=PLACE --sha256=DIGEST --into=FOLDER --package=numpy -- train

Packages go into the environment that `python3` belongs to, by the uv that was brought with Fray's runtime.
Standard library only, in any image. What stands in the command is decided by `fray.plan.command`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zlib
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from fray.credentials import redacted
from fray.errors import (
    PackagesError,
    PackagesNotInstalledError,
    PayloadMissingError,
    PayloadStorageError,
    PythonNotWritableError,
    WorkspaceChangedError,
    WorkspaceError,
    WorkspaceMissingError,
    WorkspaceUnreadableError,
)
from fray.payload.chunks import KEY_PREFIX, join_parts
from fray.payload.staging import FsspecStorage
from fray.runtime.outcome_report import Reporter
from fray.runtime.termination_signal import exit_on_termination
from fray.vocabulary import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_PACKAGES,
    EXIT_WORKSPACE,
    TERMINATION_LOG,
)

__all__ = ["become", "main", "unpack_workspace"]

PACKAGES = Path(__file__).parents[2]
"""What the init container has brought: Fray and cloudpickle."""
UV = PACKAGES / "uv"
"""Beside them."""
SHOWN_LINES = 12
END_SECONDS = 5.0


@dataclass(frozen=True)
class _Options:
    offer_fray: bool
    workspace: str | None
    sha256: str
    into: Path
    package: list[str]
    extra: list[str]
    cache: Path | None
    uv: Path
    termination_log: Path
    command: list[str]


def main(arguments: Sequence[str]) -> int:
    """Prepare, and become the command; return an exit code only where that can't be.

    112: the workspace isn't what it should be; 113: packages can't be installed; 126 and 127 as a shell.
    """
    options = _parse(arguments)
    reporter = Reporter(None, options.termination_log)
    with exit_on_termination():
        try:
            if options.workspace is not None:
                unpack_workspace(_read(options.workspace), sha256=options.sha256, into=options.into)
                _enter(options.into)
            if options.package or options.extra:
                _install(options, os.environ)  # noqa: TID251 - uv has settings of its own there
            if options.offer_fray:
                _offer_fray(PACKAGES, os.environ)  # noqa: TID251 - for the entrypoint
        except (WorkspaceError, PackagesError) as error:
            sys.stderr.write(f"fray: {error}\n")
            sys.stderr.flush()
            reporter.never_ran(error)
            return EXIT_WORKSPACE if isinstance(error, WorkspaceError) else EXIT_PACKAGES
    return become(options.command)


def _parse(arguments: Sequence[str]) -> _Options:
    parser = argparse.ArgumentParser(
        prog="fray.runtime.preparation", description="Prepare a job's container."
    )
    parser.add_argument("--offer-fray", action="store_true", help="let the command import Fray")
    parser.add_argument("--workspace", help="directory or fsspec URL of the archive")
    parser.add_argument("--sha256", default="", help="digest of the archive")
    parser.add_argument("--into", type=Path, default=Path(), help="where to unpack it, and go")
    parser.add_argument("--package", action="append", default=[], help="a line of a requirements file")
    parser.add_argument("--extra", action="append", default=[], help="extra of the project in the workspace")
    parser.add_argument("--cache", type=Path, help="folder that is kept between attempts")
    parser.add_argument("--uv", type=Path, default=UV)
    parser.add_argument("--termination-log", type=Path, default=Path(TERMINATION_LOG))
    end = arguments.index("--")  # the entrypoint may have such an argument too
    return _Options(**vars(parser.parse_args(arguments[:end])), command=list(arguments[end + 1 :]))


def _read(place: str) -> bytes:
    """Return the archive. Raises `WorkspaceMissingError`."""
    try:
        if "://" in place:
            return FsspecStorage().read(place)
        folder = Path(place)
        # The kubelet mounts a Secret by links to a folder `..data`.
        names = [path.name for path in folder.iterdir() if not path.name.startswith("..")]
        if len(names) == 1 and not names[0].startswith(KEY_PREFIX):
            return (folder / names[0]).read_bytes()
        return join_parts(folder)
    except PayloadMissingError as error:
        raise WorkspaceMissingError(error.place, error.problem) from error
    except PayloadStorageError as error:
        raise WorkspaceMissingError(error.url, f"{error.problem}. {error.next_step}") from error
    except OSError as error:
        raise WorkspaceMissingError(place, error.strerror or str(error)) from error


def unpack_workspace(data: bytes, *, sha256: str, into: Path) -> None:
    """Write the files of an archive of this digest into a folder. Raises `WorkspaceError`."""
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise WorkspaceChangedError(sha256, found, len(data))
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(into, filter="data")
            else:  # before 3.11.4
                tar.extractall(into)
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise WorkspaceUnreadableError(str(into), f"{type(error).__name__}: {error}") from error


def _enter(folder: Path) -> None:
    os.chdir(folder)
    os.environ["PWD"] = str(folder)  # noqa: TID251 - for the entrypoint, as `cd` would set it


def _install(options: _Options, environ: Mapping[str, str]) -> None:
    """Install packages and the project with its extras, together. Raises `PackagesError`."""
    project = [f".[{','.join(options.extra)}]"] if options.extra else []
    packages = tuple(redacted(each) for each in (*options.package, *project))
    directory = Path(sysconfig.get_path("purelib"))
    if not _is_writable(directory):
        raise PythonNotWritableError(str(directory), os.getuid())
    command = [str(options.uv), "pip", "install", "--no-progress", "--python", sys.executable]
    # The distribution's own packages aren't this container's concern: it is made anew for every attempt.
    command.append("--break-system-packages")
    settings = {"UV_LINK_MODE": "copy", "UV_PYTHON_DOWNLOADS": "never"}
    if options.cache is not None:
        settings["UV_CACHE_DIR"] = str(options.cache / "uv")
    elif "UV_CACHE_DIR" not in environ:
        command.append("--no-cache")
    if options.package:
        command += ["--requirements", "-"]
    for each in project:
        command += ["--editable", each]
    lines = "".join(f"{package}\n" for package in options.package)
    sys.stderr.write(f"fray: installing {', '.join(packages)}\n")
    code, last = _run(command, {**settings, **environ}, lines)
    if code != 0:
        raise PackagesNotInstalledError(packages, redacted(last) or f"uv ended with exit code {code}")


def _offer_fray(packages: Path, environ: MutableMapping[str, str]) -> None:
    """Let the entrypoint's Python find these packages, unless it has a Fray of its own."""
    importlib.invalidate_caches()  # it may have been installed a moment ago
    others = [each for each in sys.path if Path(each or ".").absolute() != packages.absolute()]
    if PathFinder.find_spec("fray", others) is None:
        known = environ.get("PYTHONPATH")
        environ["PYTHONPATH"] = f"{known}{os.pathsep}{packages}" if known else str(packages)


def _is_writable(directory: Path) -> bool:
    existing = next(each for each in (directory, *directory.parents) if each.exists())
    return os.access(existing, os.W_OK | os.X_OK)


def _run(command: Sequence[str], environ: Mapping[str, str], text: str) -> tuple[int, str]:
    """Return the exit code of uv and its last words, which are in the log as well. Raises `PackagesError`."""
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    try:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise PackagesNotInstalledError((command[0],), error.strerror or str(error)) from error
    with process:
        try:
            assert process.stdin is not None
            assert process.stderr is not None
            try:
                process.stdin.write(text)
                process.stdin.close()
            except BrokenPipeError:
                pass  # it has ended already, and says why
            for line in process.stderr:
                sys.stderr.write(line)
                if not line.startswith("Using Python"):
                    last.append(line.strip())
            return process.wait(), " ".join(filter(None, last))
        except BaseException:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def become(command: Sequence[str]) -> int:
    """Let the entrypoint take this process's place; return an exit code where it can't."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what it starts would too
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.stderr.write(f"fray: {command[0]}: {error.strerror}\n")
        return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
