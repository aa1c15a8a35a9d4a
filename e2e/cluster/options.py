"""What a test cluster is asked to be, and what it was made from: both decide whether it can be used again.

How a cluster is made is the providers' part (`local`, `kind`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Layout, build_layout
from e2e.cluster.versions import load_parts

__all__ = ["Options", "Record", "derive_fingerprint", "describe_reuse", "find_fault"]


@dataclass(frozen=True)
class Options:
    """What a cluster has beyond its two TPU pools: more hosts for ordinary pods, and for GPUs.

    The defaults are what the scenarios need, so that a cluster made by hand is theirs too.
    """

    cpu_hosts: int = 0
    gpu_hosts: int = 2

    def layout(self) -> Layout:
        """The hosts that these options ask for. Raises ValueError."""
        return build_layout(cpu_hosts=self.cpu_hosts, gpu_hosts=self.gpu_hosts)


@dataclass(frozen=True)
class Record:
    """What a cluster was made as, kept beside it."""

    options: Options
    fingerprint: str

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote. Raises ValueError for anything else."""
        try:
            content = json.loads(text)
            return cls(Options(**content["options"]), content["fingerprint"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no record of a cluster: {text[:200]}") from error

    def to_json(self) -> str:
        """The record as text."""
        return json.dumps({"options": asdict(self.options), "fingerprint": self.fingerprint})


def find_fault(made: Record, wanted: Record, observe_health: Callable[[], Mapping[str, bool]]) -> str | None:
    """Why a cluster can't be used for what is wanted now, as a clause about it; None when it can.

    Hosts that nobody asked for are no fault: somebody's jobs may run on them. `observe_health` says what
    works, by name, and is only called when nothing else speaks against the cluster.
    """
    if made.fingerprint != wanted.fingerprint:
        return "other versions of its parts or of these files made it"
    if lacking := _names_beyond(wanted.options, made.options):
        return f"it has no {', '.join(lacking)}"
    try:
        broken = [what for what, holds in observe_health().items() if not holds]
    except (ClusterError, OSError) as error:
        return f"it doesn't answer: {error}"
    return f"this is no longer true of it: {'; '.join(broken)}" if broken else None


def describe_reuse(made: Options, wanted: Options) -> str:
    """What to tell of a cluster that is used as it is."""
    beyond = _names_beyond(made, wanted)
    more = f", with hosts beyond those asked for, which stay: {', '.join(beyond)}" if beyond else ""
    return f"the cluster is up already{more}"


def _names_beyond(more: Options, less: Options) -> list[str]:
    known = {host.name for host in less.layout().hosts}
    return [host.name for host in more.layout().hosts if host.name not in known]


def derive_fingerprint() -> str:
    """A digest that changes with anything a cluster was made from: versions, manifests, these files."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(path for path in here.rglob("*") if path.suffix in {".py", ".toml", ".yaml", ".sum"}):
        digest.update(path.relative_to(here).as_posix().encode())
        digest.update(path.read_bytes())
    # Which of the pinned versions count is said by FRAY_SKEW, in no file.
    for part in load_parts().values():
        digest.update(f"{part.name} {part.version}\n".encode())
    return digest.hexdigest()
