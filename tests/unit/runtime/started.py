"""Starts the runner of callables as a pod would: a process elsewhere, with nothing to import from here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

import fray
from fray.payload.callables import Payload, encode_callable
from fray.payload.chunks import split_payload
from fray.payload.outcome import Outcome, decode_outcome
from fray.payload.stamp import PYTHON
from fray.termination import TerminationMessage

RUNNER = "fray.runtime.callable_runner"


@dataclass
class Ended:
    """A runner that has ended: what it printed, and what it left."""

    code: int
    out: str
    err: str
    message: TerminationMessage | None
    outcome_data: bytes | None

    @property
    def outcome(self) -> Outcome:
        assert self.message is not None
        assert self.message.sha256 is not None
        assert self.outcome_data is not None
        return decode_outcome(self.outcome_data, sha256=self.message.sha256)


@dataclass
class Pod:
    """The places that a pod's process knows, in a directory; `environ` is all of its environment.

    `runner` is what its Python runs. `kubelet`: somebody waits for a termination message.
    `results`: the staging URL for large outcomes.
    """

    directory: Path
    python: str = sys.executable
    flags: tuple[str, ...] = ()
    runner: tuple[str, ...] = ("-m", RUNNER)
    kubelet: bool = True
    results: str = ""
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def mount(self, payload: Payload, *, size: int = 1000) -> None:
        mounted = self.directory / "payload"
        mounted.mkdir()
        for part in split_payload(payload.data, secret_name="payload", size=size):
            (mounted / part.key).write_bytes(part.data)

    def start(self, sha256: str, *, place: str | None = None, python: str = PYTHON) -> subprocess.Popen[str]:
        if self.kubelet:
            (self.directory / "termination-log").touch()
        (self.directory / "work").mkdir()
        command = [
            *(self.python, *self.flags, *self.runner, place or str(self.directory / "payload")),
            *("--sha256", sha256, "--python", python),
            *("--outcome", str(self.directory / "outcome")),
            *("--termination-log", str(self.directory / "termination-log")),
            *(("--results", self.results) if self.results else ()),
        ]
        return subprocess.Popen(
            command,
            cwd=self.directory / "work",
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Ended:
        with process:
            try:
                out, err = process.communicate(timeout=100)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        log = self.directory / "termination-log"
        message = TerminationMessage.from_json(log.read_text()) if log.exists() else None
        left = self.directory / "outcome"
        return Ended(process.returncode, out, err, message, left.read_bytes() if left.exists() else None)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Ended:
        payload = encode_callable(function, args, kwargs)
        self.mount(payload)
        return self.end(self.start(payload.sha256))


def bare_paths(directory: Path) -> str:
    """A PYTHONPATH with Fray and cloudpickle and nothing else, as images have that they are copied into."""
    directory.mkdir()
    for package in (fray, cloudpickle):
        assert package.__file__ is not None
        (directory / package.__name__).symlink_to(Path(package.__file__).parent)
    return str(directory)


def run_script(
    text: str, arguments: Sequence[str], environ: Mapping[str, str], *, python: str, path: Path
) -> str:
    """Run a launching script as a user does, and return what it printed."""
    path.write_text(text)
    done = subprocess.run(
        [python, str(path), *arguments], env=environ, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
