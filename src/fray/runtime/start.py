"""What images that may lack Fray run first: finds Fray's runtime, and hands over to it.

    python3 /var/run/fray/runtime/fray/runtime/start.py call PLACE --sha256 DIGEST --python 3.11
    python3 /var/run/fray/runtime/fray/runtime/start.py prepare --package numpy -- train
    python3 /var/run/fray/runtime/fray/runtime/start.py run fray.runtime.pool.worker_pod

Run as a file, from the copy of Fray that the pod's init container has brought. That copy is the last resort:
an image's own Fray is used for callables, since it can also ask the cluster for more jobs. Any Python from
3.7 can read this file, so that an old one is refused in words.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path

__all__ = ["main"]

OLDEST = (3, 11)
EXIT_PYTHON = 116
"""As `EXIT_PAYLOAD_PYTHON`, and the next one as `TERMINATION_LOG`: nothing can be imported yet."""
LOG = "/dev/termination-log"


def main(arguments: list[str], log: str = LOG) -> int:
    """Run what the first argument names, `call`, `prepare` or `run`, with the others; return its exit code.

    What is run is a module, as by `python3 -m`.
    """
    if sys.version_info[:2] < OLDEST:
        return _refuse(Path(log))
    # Not resolved: where packages are links, they are to be found by their own names.
    folder = Path(__file__).absolute().parent
    _forget_script(folder)
    task, *rest = arguments
    _find_fray(str(folder.parents[1]), own=task == "prepare")
    if task == "prepare":
        from fray.runtime.preparation import main as prepare  # noqa: PLC0415 - where it is, is known only now

        return prepare(rest)
    if task == "run":
        module, *sys.argv[1:] = rest
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    from fray.runtime.callable_runner import main as call  # noqa: PLC0415 - as above

    return call(rest)


def _forget_script(folder: Path) -> None:
    """Let the path begin with the working directory, as with `python3 -m`, and not with this file's."""
    # Python has resolved links on the way to it: /var/run is one in most images.
    if sys.path and Path(sys.path[0]).resolve() == folder.resolve():
        sys.path[0] = str(Path.cwd())


def _find_fray(packages: str, *, own: bool) -> None:
    """Put the copy of Fray on the path: last, or first if the image's isn't wanted or is another one."""
    sys.path.append(packages)
    spec = importlib.util.find_spec("fray")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    if own or not any(Path(place, "runtime", "callable_runner.py").is_file() for place in places):
        sys.path.remove(packages)
        sys.path.insert(0, packages)


def _refuse(log: Path) -> int:
    here = ".".join(str(part) for part in sys.version_info[:2])
    message = f"this image's python3 is Python {here}, and Fray needs 3.11\nUse an image with a newer Python."
    sys.stderr.write(f"fray: {message}\n")
    known = {"fray": 1, "ending": "neverRan", "type": "PythonTooOld", "message": message, "traceback": ""}
    if log.exists():
        log.write_text(json.dumps(known), encoding="utf-8")
    return EXIT_PYTHON


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
