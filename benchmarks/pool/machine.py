"""What the figures were measured on. Reads Linux's own accounts; nothing that names the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["describe_machine"]


def describe_machine() -> dict[str, object]:
    """Processors, memory in GB, kernel and Python."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "processor": _read_field("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_gb": round(int(_read_field("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _read_field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        field, _, value = line.partition(":")
        if field.strip() == name:
            return value.strip()
    return ""
