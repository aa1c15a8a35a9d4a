"""Who made a payload or an outcome: the versions on which it depends whether it can be read.

What follows from a difference is for the readers to say.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import asdict, dataclass

import cloudpickle  # type: ignore[import-untyped]

__all__ = ["PYTHON", "Stamp"]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Minor version of this process's Python: functions by value are bytecode, which no other one runs."""


@dataclass(frozen=True)
class Stamp:
    """The versions of Python (minor, such as `3.11`), cloudpickle and Fray that made something."""

    python: str
    cloudpickle: str
    fray: str

    @classmethod
    @functools.cache
    def here(cls) -> Stamp:
        """Return that of this process; what was copied into an image has no version of Fray (`unknown`)."""
        # It takes as long as all else that a process of the pool imports, and few of them need it.
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            fray = version("fray")
        except PackageNotFoundError:
            fray = "unknown"
        return cls(PYTHON, str(cloudpickle.__version__), fray)

    @classmethod
    def from_json(cls, text: str | bytes) -> Stamp:
        """Return the stamp that `to_json` gave; raises `ValueError` for any other text."""
        known = json.loads(text)
        names = ("python", "cloudpickle", "fray")
        if not isinstance(known, dict) or not all(isinstance(known.get(name), str) for name in names):
            raise ValueError("no stamp")
        return cls(**{name: known[name] for name in names})

    def to_json(self) -> str:
        """Return it as one line of ASCII."""
        return json.dumps(asdict(self))

    def differences(self, other: Stamp) -> str:
        """Say which versions differ from those of `other`, which is here; empty where none do."""
        ours, theirs = asdict(self), asdict(other)
        differing = [name for name in ours if ours[name] != theirs[name]]
        return ", ".join(f"made by {name} {ours[name]}, here is {theirs[name]}" for name in differing)
