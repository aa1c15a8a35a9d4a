"""What this process may use of its machine: the CPUs and the memory that its container leaves it.

The machine's own numbers are wrong in a pod, where a control group gives a part of them. Read here, and
nowhere else; what is done with it is for the callers to say.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from fray.runtime.control_groups import cpu_limits, memory_limits

__all__ = [
    "THREAD_LIMITS",
    "available_accelerators",
    "available_cpus",
    "available_memory",
    "is_in_memory",
    "spell_resources",
    "thread_limits",
]

_OF_ANY_CASE = frozenset(("CPU", "GPU", "TPU"))
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables that numerical libraries read; without them, each process takes a thread a CPU of the machine."""


def available_cpus() -> int:
    """Return how many CPUs this process may use, at least 1: by its affinity and its control groups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, cpu_limits())]))


def available_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its control groups'."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *memory_limits()])


def is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether files in a folder take memory: tmpfs, by proc(5)'s list of mounts where there is one."""
    try:
        device = folder.stat().st_dev
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    return any(line.split()[2] == name and " - tmpfs " in line for line in lines)


def available_accelerators(devices: Path = Path("/dev")) -> dict[str, float]:
    """Return how many GPUs and TPU chips this process can open, by the names that tasks ask for them.

    A pod sees the device files of what it was given: `nvidia0` and so on (NVIDIA's device plugin and GKE's),
    `accel0` of TPUs up to v4, `vfio/0` of later ones (Cloud TPU's documentation).
    """
    patterns = {"GPU": ("nvidia[0-9]*",), "TPU": ("accel[0-9]*", "vfio/[0-9]*")}
    found = {
        name: next((count for each in choices if (count := len(list(devices.glob(each))))), 0)
        for name, choices in patterns.items()
    }
    return {name: float(count) for name, count in found.items() if count}


def spell_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources with one spelling of "CPU", "GPU" and "TPU", whose case doesn't matter."""
    return {
        name.upper() if name.upper() in _OF_ANY_CASE else name: amount for name, amount in resources.items()
    }


def thread_limits(cpus: float, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that keep numerical libraries to so many CPUs a process; none if one is set."""
    if any(name in environ for name in THREAD_LIMITS):
        return ()
    return tuple((name, str(max(1, int(cpus)))) for name in THREAD_LIMITS)
