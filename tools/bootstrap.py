"""Prepare this checkout: uv, a virtual environment, and everything the lock file names.

Runs on a bare python3 with the standard library alone, so it must not import anything of the project.
Says what it installs and where; does nothing when all is in place. `make` calls it before every target.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
VENV = ROOT / ".venv"
STAMP = VENV / ".installed"
LOCK = ROOT / "requirements.lock"
UV_VERSION = "0.13.8"
PYTHON = ">=3.11"


def say(text: str) -> None:
    """Print one line on standard error: standard output belongs to the command that follows."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def run(*command: object, **options: object) -> None:
    """Run a command; exit with its output's own words when it fails."""
    arguments = [str(part) for part in command]
    finished = subprocess.run(arguments, cwd=ROOT, check=False, **options)  # type: ignore[call-overload]
    if finished.returncode != 0:
        say(f"failed: {' '.join(arguments)} (exit code {finished.returncode})")
        sys.exit(1)


def has_version(uv: Path) -> bool:
    """Return whether this is the uv that the project pins."""
    try:
        found = subprocess.run([str(uv), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    return found.split()[1:2] == [UV_VERSION]


def ensure_uv() -> Path:
    """Return the pinned uv, taken from the PATH or installed into the checkout."""
    own = TOOLS / "bin" / "uv"
    on_path = shutil.which("uv")
    for candidate in [own, *([Path(on_path)] if on_path else [])]:
        if has_version(candidate):
            return candidate
    ensure_pip()
    say(f"installing uv {UV_VERSION} into {TOOLS.relative_to(ROOT)}/ (about 60 MB)")
    shutil.rmtree(TOOLS, ignore_errors=True)
    quiet = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-warn-script-location",
        "--root-user-action=ignore",
    )
    run(sys.executable, "-m", "pip", "install", *quiet, "--target", TOOLS, f"uv=={UV_VERSION}")
    return own


def ensure_pip() -> None:
    """Make sure that this python3 has pip, which a bare Debian leaves out."""
    probe = [sys.executable, "-m", "pip", "--version"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return
    if shutil.which("apt-get") is None:
        say(
            "python3 has no pip: install pip (or uv "
            + UV_VERSION
            + ") with your package manager, then try again"
        )
        sys.exit(1)
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    say(
        "installing Debian's python3-pip with apt-get: it fetches uv" + (" (asks for sudo)" if prefix else "")
    )
    run(*prefix, "apt-get", "update", "-qq")
    run(*prefix, "apt-get", "install", "-qq", "--yes", "--no-install-recommends", "python3-pip")


def fingerprint() -> str:
    """Return a digest of all that decides what the environment holds."""
    digest = hashlib.sha256(f"{UV_VERSION} {ROOT}".encode())
    for path in (LOCK, ROOT / "pyproject.toml", ROOT / "operator" / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    """Bring the environment up to date."""
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return
    uv = ensure_uv()
    if not (VENV / "bin" / "python").exists():
        say(f"creating {VENV.relative_to(ROOT)}/ with Python {PYTHON}")
        run(uv, "venv", "--quiet", "--clear", "--python", PYTHON, VENV)
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV)}
    packages = sum(1 for line in LOCK.read_text().splitlines() if line[:1].isalnum())
    say(f"installing {packages} pinned packages of {LOCK.name} into {VENV.relative_to(ROOT)}/ (about 1 GB)")
    run(uv, "pip", "sync", "--quiet", "--require-hashes", LOCK, env=environment)
    local = ("--quiet", "--no-deps", "--no-build-isolation", "--editable", ".", "--editable", "operator")
    run(uv, "pip", "install", *local, env=environment)
    # Written last: an interrupted run is begun again.
    STAMP.write_text(wanted)
    say("ready")


if __name__ == "__main__":
    main()
