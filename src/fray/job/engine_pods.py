"""What the programs of Dask and of Ray in pods share: versions that must be the same, and how they end."""

from __future__ import annotations

import sys
from typing import NamedTuple

__all__ = ["Versions", "build_refusal", "describe_packages", "report_end"]


class Versions(NamedTuple):
    """What must be the same in all pods: values are pickled, and an engine's messages follow its version."""

    python: str
    engine: str
    fray: str


def describe_packages(package: str) -> str:
    """Return where the package of an engine comes from in pods."""
    return f"Add `{package}` to the image, or to spec.environment.pipPackages."


def build_refusal(package: str, *, head: Versions, worker: Versions) -> str:
    """Return why a worker can't join, and what to write; empty: it can. `package` is that of the engine."""
    if worker == head:
        return ""
    return (
        f"It has Python {worker.python}, {package} {worker.engine} and Fray {worker.fray}; the head has "
        f"Python {head.python}, {package} {head.engine} and Fray {head.fray}. Give workers the image of the "
        f"job, or both images of Python {head.python}, with `{package}=={head.engine}` in the pipPackages of "
        "each environment."
    )


def report_end(problem: object, code: int) -> int:
    """Write why a program ends; return its exit code."""
    sys.stderr.write(f"fray: {problem}\n")
    return code
