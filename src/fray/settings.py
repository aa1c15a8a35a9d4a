"""What a user sets about Fray on this machine, read once from the environment.

Only settings of the client side stand here: what a job asks for is in its FrayJob, what an operator
decides is in the operator's own settings. `from_env` takes a mapping, so nothing here reads
`os.environ`; the command line does that once, at its start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fray.errors import SettingError

__all__ = ["STATE_DIR", "Settings"]

STATE_DIR = "FRAY_STATE_DIR"
BACKOFF_SECONDS = "FRAY_BACKOFF_SECONDS"


@dataclass(frozen=True)
class Settings:
    """The settings of one process."""

    state_dir: Path
    """Where local jobs keep status and logs (FRAY_STATE_DIR; default `fray` in XDG_STATE_HOME)."""
    backoff_seconds: float = 1.0
    """Pause before a local job's first retry, doubled for each in a row (FRAY_BACKOFF_SECONDS)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; what isn't set, or empty, has its default.

        Raises:
            SettingError: a variable holds something that it can't mean.
        """
        return cls(
            state_dir=_state_dir(environ),
            backoff_seconds=_seconds(environ, BACKOFF_SECONDS, default=cls.backoff_seconds),
        )

    def to_env(self) -> dict[str, str]:
        """Return the variables that make `from_env` read these settings again."""
        return {STATE_DIR: str(self.state_dir), BACKOFF_SECONDS: repr(self.backoff_seconds)}


def _state_dir(environ: Mapping[str, str]) -> Path:
    own = environ.get(STATE_DIR)
    if own:
        # Made absolute, since a job's runner and `fray logs` may have different working directories.
        return Path(own).expanduser().absolute()
    base = environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and must be ignored.
    if base and Path(base).is_absolute():
        return Path(base) / "fray"
    home = environ.get("HOME")
    if not home:
        raise SettingError(STATE_DIR, "is not set, and there is no HOME to put the state of local jobs in")
    return Path(home).absolute() / ".local" / "state" / "fray"


def _seconds(environ: Mapping[str, str], variable: str, *, default: float) -> float:
    text = environ.get(variable)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        raise SettingError(variable, f"is {text!r}, not a number of seconds") from None
    if not (math.isfinite(seconds) and 0 <= seconds <= 86400):
        raise SettingError(variable, f"is {text}; legal are 0 to 86400 seconds")
    return seconds
