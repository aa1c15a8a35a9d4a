"""Environments of what only one target needs, apart from the project's own (`make setup`)."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tools.bootstrap import ROOT, ensure_uv, run, say

__all__ = ["prepare"]


def prepare(venv: Path, lock: Path, content: str) -> None:
    """Bring an environment up to date with its lock, with the Python that runs this; else do nothing."""
    stamp = venv / ".installed"
    wanted = hashlib.sha256(f"{ROOT} {sys.version}".encode() + lock.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    uv = ensure_uv()
    say(f"installing {content} into {venv.relative_to(ROOT)}/")
    run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv)
    environment = {**os.environ, "VIRTUAL_ENV": str(venv)}
    run(uv, "pip", "sync", "--quiet", "--require-hashes", lock, env=environment)
    # Written last: an interrupted run is begun again.
    stamp.write_text(wanted)
    say("ready")
