"""A `docker` for the kind CLI that makes no containers: it answers until kubeadm would run, and keeps it all.

What kind asks of docker was read in its pkg/cluster/internal/providers/docker; anything else fails.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["REFUSAL", "FakeDocker", "write_fake_docker"]

REFUSAL = "no containers here"
"""What it says to anything that would need a real container."""

_SCRIPT = """#!/bin/sh
cd "$FAKE_DOCKER" || exit 1
echo "$*" >> calls
case "$*" in
"version "*) echo linux amd64 ;;
"info "*) echo '{"CgroupVersion": "2", "CgroupDriver": "systemd"}' ;;
"ps "*) cat nodes ;;
"inspect --type=image "*) ;;
"network ls "*) echo kind ;;
"network inspect "*) echo '[{"Id": "kind"}]' ;;
"run --name "*) echo "$3" >> nodes ;;
"logs -f "*) echo "Reached target Multi-User System." ;;
"inspect --format "*"-control-plane") echo control-plane ;;
"inspect --format "*) echo worker ;;
"inspect -f "*) echo 192.0.2.1, ;;
"rm "*) : > nodes ;;
"exec --privileged "*" cat /kind/version") echo v1.34.0 ;;
"exec --privileged "*" mkdir -p /kind") ;;
"exec --privileged "*" containerd config dump")
    printf 'version = 3\\n[plugins."io.containerd.cri.v1.images"]\\nsnapshotter = "overlayfs"\\n' ;;
"exec --privileged -i "*" cp /dev/stdin /kind/kubeadm.conf") cat > "$4.kubeadm" ;;
"exec --privileged -i "*" ctr "*" import "*) cat > "$4.archive" ;;
*) echo "REFUSAL: $*" >&2; exit 1 ;;
esac
"""


@dataclass(frozen=True)
class FakeDocker:
    """The folder of a fake docker: its program, and what it got."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program that shall find this docker and no other."""
        return {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "FAKE_DOCKER": str(self.folder),
            "KIND_EXPERIMENTAL_PROVIDER": "docker",
        }

    def calls(self) -> list[str]:
        """The words of each call so far."""
        return (self.folder / "calls").read_text().splitlines()

    def nodes(self) -> list[str]:
        """The containers that there would be."""
        return (self.folder / "nodes").read_text().split()

    def received(self, node: str, what: str) -> str:
        """What a node was given: its `kubeadm` config, or an image `archive`."""
        return (self.folder / f"{node}.{what}").read_text()

    def create_cluster(self, kind: Path, config: str) -> subprocess.CompletedProcess[str]:
        """Run `kind create cluster`, which can't succeed."""
        command = [str(kind), "create", "cluster", "--config=-", f"--kubeconfig={self.folder}/kubeconfig"]
        return subprocess.run(
            command,
            input=config,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def write_fake_docker(folder: Path, *, nodes: tuple[str, ...] = ()) -> FakeDocker:
    """A fake docker in an empty folder; `nodes` are containers that are there at first."""
    program = folder / "docker"
    program.write_text(_SCRIPT.replace("REFUSAL", REFUSAL))
    program.chmod(0o755)
    (folder / "calls").touch()
    (folder / "nodes").write_text("".join(f"{node}\n" for node in nodes))
    return FakeDocker(folder)
