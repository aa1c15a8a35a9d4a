"""The Secret `fray-auth` in a directory, as the kubelet mounts it: all files change at once."""

from __future__ import annotations

import base64
import itertools
from datetime import UTC, datetime
from pathlib import Path

from fray_operator.auth_keys import AuthKeys, Step, apply_step, build_secret

__all__ = ["MountedSecret", "rotated"]


class MountedSecret:
    """A volume of a pod: `..data` is a link to the directory of the newest version."""

    def __init__(self, directory: Path, keys: AuthKeys) -> None:
        self.directory = directory
        self._versions = itertools.count(1)
        directory.mkdir()
        self.show(keys)
        for name in ("pool.key", "tls.crt", "tls.key", "accepted.crt"):
            (directory / name).symlink_to(Path("..data", name))

    def show(self, keys: AuthKeys) -> None:
        """Replace all files."""
        data = build_secret(keys, namespace="ml")["data"]
        self.write({name: base64.b64decode(value) for name, value in data.items()})

    def write(self, files: dict[str, bytes]) -> None:
        """Replace all files by these."""
        version = f"..{next(self._versions)}"
        (self.directory / version).mkdir()
        for name, content in files.items():
            (self.directory / version / name).write_bytes(content)
        link = self.directory / "..data_tmp"
        link.symlink_to(version)
        link.rename(self.directory / "..data")


def rotated() -> list[AuthKeys]:
    """What a Secret holds from one rotation to the next: the old key, both (twice), the new one."""
    now = datetime.now(UTC)
    states = [apply_step(None, Step.MAKE, now=now)]
    for step in (Step.PREPARE, Step.SWITCH, Step.FORGET):
        states.append(apply_step(states[-1], step, now=now))
    return states
