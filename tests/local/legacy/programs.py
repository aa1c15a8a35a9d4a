"""Programs of users of earlier APIs, and the surroundings that they run in."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "build_wheel"]

TOOLS = Path(__file__).parents[3] / ".tools" / "bin"


@dataclass(frozen=True)
class Place:
    """A directory with a program's files, and a state directory of its own."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, program: str, variables: Mapping[str, str] | None = None) -> str:
        """Return what a program prints that ends well and complains of nothing."""
        self.write("program.py", program)
        known = {key: value for key, value in os.environ.items() if not key.startswith("FRAY_")}
        known |= {"FRAY_STATE_DIR": str(self.folder / "state"), "PATH": f"{TOOLS}:{os.environ['PATH']}"}
        known |= {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(self.folder / "wheels")}
        ran = subprocess.run(
            [sys.executable, "program.py"],
            cwd=self.folder,
            env={**known, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), ran
        return ran.stdout


def build_wheel(folder: Path, package: str) -> None:
    """Make a wheel with one module, which tells its own name."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}.py", f"WHAT = {package!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
