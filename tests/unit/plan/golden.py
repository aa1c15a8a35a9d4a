"""The golden shapes: what FrayJobs become, written down as files that a reader can check.

`tests/golden/<shape>/job.yaml` is written by hand; `jobset.yaml` beside it is the first attempt's JobSet,
preceded by the plan's notices as comments. `regenerate_golden` writes the latter.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.settings import PlanSettings
from fray.wire.frayjob import FrayJob

__all__ = ["GOLDEN", "build_golden", "read_job", "render", "shapes"]

GOLDEN = Path(__file__).parents[2] / "golden"
LONGEST_LINE = 1000
"""Longer values are lists of hosts, of which the ends and a digest tell enough."""


class _Dumper(yaml.SafeDumper):
    """Writes scripts as they are and, in place of aliases, everything where it stands."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if len(text) > LONGEST_LINE:
        first, *middle, last = text.split(",")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = f"{first},({len(middle)} more),{last} # {len(text)} characters, sha256 {digest}"
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def shapes() -> list[str]:
    """Return the names of all golden shapes."""
    return sorted(path.parent.name for path in GOLDEN.glob("*/job.yaml"))


def read_job(shape: str) -> FrayJob:
    """Return the FrayJob of a shape."""
    return FrayJob.from_manifest(yaml.safe_load((GOLDEN / shape / "job.yaml").read_text(encoding="utf-8")))


def build_golden(shape: str) -> AttemptPlan:
    """Return what the first attempt of a shape becomes on GKE."""
    return build_attempt(read_job(shape), attempt=1, settings=PlanSettings())


def render(plan: AttemptPlan) -> str:
    """Return the text of `jobset.yaml`."""
    notices = "".join(f"# notice: {notice}\n" for notice in plan.notices)
    return notices + yaml.dump(plan.jobset, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)
