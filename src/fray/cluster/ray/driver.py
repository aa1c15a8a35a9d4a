"""The program of a Ray job: runs a FrayJob on the node that Ray has chosen, as `fray run` does on a machine.

It starts in the folder that the launcher sent along, and tells of the job where Ray's dashboard finds it:

    <session>/logs/<reports folder>/job.json              the FrayJob with its status
    <session>/logs/<reports folder>/jobs/<name>/...       see `fray.cluster.local.store`
    standard output                                       a JSON object for each line that a host prints
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from fray.cluster.arguments import LogChoice
from fray.cluster.local.claims import take_name
from fray.cluster.local.launched import LaunchedJob, LaunchedJobWatch
from fray.cluster.local.log_lines import LineReader
from fray.cluster.local.runner import build_retry_policy
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.cluster.ray.bundle import Bundle, encode_line
from fray.plan.status import derive_exit_code
from fray.runtime.loop_thread import LoopThread
from fray.settings import Settings
from fray.types import JobId

__all__ = ["main"]


def main() -> int:
    """Run the job of this folder to its end, and return its exit code."""
    settings = Settings.from_env(os.environ)  # noqa: TID251 - a process's entry
    root = _find_logs() / sys.argv[1]
    reports, state = JobFolder(root), StateDirectory(root)
    job, workplace = Bundle(Path.cwd()).read()
    name, locks = take_name(state, job.metadata.name)
    launched = LaunchedJob(
        job,
        state=state,
        locks=locks,
        workplace=workplace,
        policy=build_retry_policy(settings.backoff_seconds),
        finished=lambda: None,
    )
    state.job(name).write(launched.job)
    loop = LoopThread("fray-ray-driver", cancels=False)
    signal.signal(signal.SIGTERM, lambda *_: loop.call(launched.stop))
    loop.start(launched.run())
    printing = threading.Thread(target=_print_lines, args=(launched, state.job(name)))
    printing.start()
    watch = LaunchedJobWatch(launched)
    job, ended = watch.look()
    while not ended:
        reports.write(job)
        watch.pause()
        job, ended = watch.look()
    # Who reads that the job has ended finds all of its lines.
    printing.join()
    reports.write(job)
    loop.close()
    return derive_exit_code(job.status)


def _print_lines(launched: LaunchedJob, folder: JobFolder) -> None:
    reader = LineReader(JobId(launched.job.metadata.name), folder, LogChoice(follow=True))
    for line in reader.read(LaunchedJobWatch(launched)):
        sys.stdout.write(encode_line(line) + "\n")
        sys.stdout.flush()


def _find_logs() -> Path:
    """Return the folder of Ray's logs on this node: standard output is a file in it.

    https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html
    """
    return Path("/proc/self/fd/1").readlink().parent


if __name__ == "__main__":
    sys.exit(main())
