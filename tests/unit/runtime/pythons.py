"""Other Pythons on this machine, as PATH and pyenv have them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def find_other_python() -> str | None:
    """A Python of another minor version that Fray supports, or None."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(11, 20):
        if minor == sys.version_info.minor:
            continue
        found = shutil.which(f"python3.{minor}")
        for python in (found, *map(str, versions.glob(f"3.{minor}.*/bin/python3"))):
            # A shim of pyenv may stand for a version that isn't active.
            if python is not None and _runs(python, minor):
                return python
    return None


def _runs(python: str, minor: int) -> bool:
    told = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info.minor)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() == str(minor)
