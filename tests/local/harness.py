"""Running the real command in real processes: start it, wait for conditions, find what it left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fray.cluster import Entrypoint, JobRequest, LocalCluster, create_environment

__all__ = [
    "LAUNCHER",
    "Fray",
    "Result",
    "find_processes",
    "job_manifest",
    "run_root",
    "running_job",
    "wait_for",
]

T = TypeVar("T")
MARKER = "LOCAL_TEST_RUN"
DEADLINE_SECONDS = 90.0

# Whatever the test runner ignores (it may run in the background), the command starts with defaults.
LAUNCHER = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
    "    signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


def run_root(cluster: LocalCluster, function: Callable[[], Any], directory: Path) -> Any:
    """Run a function as a job that no other job launched; return what it returns."""
    environment = create_environment(directory)
    job = cluster.launch(JobRequest("root", Entrypoint.from_callable(function), environment=environment))
    cluster.wait(job, raise_on_failure=True)
    outcome = cluster.outcome(job)
    assert outcome is not None
    return outcome.result()


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = DEADLINE_SECONDS) -> T:
    """Return the first true result of `condition`; fail when there is none in time."""
    give_up_at = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > give_up_at:
            raise AssertionError(f"waited {seconds} s for {what}, which never came")
        time.sleep(0.01)


def find_processes(marker: str) -> dict[int, str]:
    """Return the living processes of one test: id -> command line. Zombies are not alive."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARKER}={marker}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = command
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Fray:
    """The command `fray` with a state directory of its own."""

    folder: Path
    marker: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRAY_")}
        own = {
            "FRAY_STATE_DIR": str(self.state),
            "FRAY_BACKOFF_SECONDS": "0.05",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            MARKER: self.marker,
        }
        return {**inherited, **own, **(extra or {})}

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start the command; it is ended with the test."""
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, sys.executable, "-m", "fray.cli", *arguments]
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            **options,
        }
        process = subprocess.Popen(command, env=self.environ(env), cwd=self.folder, **options)
        self.started.append(process)
        return process

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None
    ) -> Result:
        """Run the command to its end."""
        options: dict[str, Any] = {} if stdin is None else {"stdin": subprocess.PIPE}
        return self.finish(self.start(*arguments, env=env, **options), stdin=stdin)

    def finish(self, process: subprocess.Popen[bytes], *, stdin: bytes | None = None) -> Result:
        """Wait for the end of a started command."""
        out, err = process.communicate(stdin, timeout=DEADLINE_SECONDS)
        return Result(process.returncode, (out or b"").decode(), (err or b"").decode())

    def run_job(
        self, manifest: dict[str, Any], *options: str, env: Mapping[str, str] | None = None
    ) -> Result:
        """Write a job file and run it."""
        return self.run("run", "-f", self.write_job(manifest), *options, env=env)

    def write_job(self, manifest: dict[str, Any]) -> str:
        path = self.folder / f"{manifest['metadata']['name']}.json"
        path.write_text(json.dumps(manifest))
        return str(path)

    def status(self, name: str) -> dict[str, Any]:
        """Return the job's resource as `fray status` prints it; empty where there is none yet."""
        result = self.run("status", name, "-o", "json")
        return json.loads(result.out) if result.code == 0 else {}

    def stored(self, name: str) -> dict[str, Any]:
        """Return the job's resource as the runner wrote it last; empty where there is none yet."""
        try:
            resource: dict[str, Any] = json.loads((self.state / "jobs" / name / "job.json").read_text())
        except FileNotFoundError:
            return {}
        return resource

    def phase(self, name: str) -> str:
        """Return the job's phase as the runner wrote it last; empty where there is none yet."""
        phase: str = self.stored(name).get("status", {}).get("phase", "")
        return phase

    def raw_log(self, name: str, *, attempt: int = 1, slice_index: int = 0, host: int = 0) -> bytes:
        folder = self.state / "jobs" / name / "logs" / f"attempt-{attempt}"
        return (folder / f"slice-{slice_index}-host-{host}.log").read_bytes()

    def processes(self) -> dict[int, str]:
        return find_processes(self.marker)

    def wait_gone(self) -> None:
        """Wait until no process of this test lives."""
        wait_for(lambda: not self.processes(), f"the end of {self.processes()}")

    def clean_up(self) -> dict[int, str]:
        """End what the test started; return the processes that were left behind by it."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr, process.stdin):
                if stream is not None:
                    stream.close()
        try:
            self.wait_gone()
        except AssertionError:
            left = self.processes()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return left
        return {}


def job_manifest(
    *command: str, name: str = "job", replicas: int = 1, tpu: str | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a FrayJob that runs a command; a single argument is a shell script."""
    argv = ["sh", "-c", command[0]] if len(command) == 1 else list(command)
    resources = {"resources": {"tpu": {"type": tpu}}} if tpu else {}
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": name},
        "spec": {"entrypoint": {"command": argv}, "replicas": replicas, **resources, **spec},
    }


def running_job(fray: Fray, manifest: dict[str, Any], *, until: str) -> subprocess.Popen[bytes]:
    """Start a job and return once each of its hosts has printed `until`."""
    process = fray.start("run", "-f", fray.write_job(manifest))
    name = manifest["metadata"]["name"]

    def printed() -> bool:
        assert process.poll() is None, process.communicate()
        logs = list((fray.state / "jobs" / name / "logs" / "attempt-1").glob("slice-*.log"))
        return bool(logs) and all(until.encode() in log.read_bytes() for log in logs)

    wait_for(printed, f"{until!r} from {name}")
    return process


def lines_of(text: str) -> Iterator[str]:
    """Yield lines without their `[slice/host]` prefix."""
    for line in text.splitlines():
        yield line.partition("] ")[2]
