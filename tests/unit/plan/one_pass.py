"""One pass over a job: JSON comes in and goes out, so that another build of Fray can make it too.

`python -m tests.unit.plan.one_pass` reads a question from standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fray.plan.gang import derive_gang
from fray.plan.lifecycle import decide
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.settings import RetryPolicy
from fray.plan.timestamps import parse_time
from fray.wire.frayjob import FrayJob

__all__ = ["make_pass"]

Manifest = dict[str, Any]


def make_pass(job: Manifest, *, now: str, jobset: Manifest | None, pods: list[Manifest]) -> Manifest:
    """Return the status that is written of a job, and the name of what is done then, None for nothing."""
    frayjob = FrayJob.from_manifest(job)
    observed = None if jobset is None else derive_gang_observation(derive_gang(frayjob.spec), jobset, pods)
    decision = decide(frayjob, observed, now=parse_time(now), policy=RetryPolicy())
    action = None if decision.action is None else type(decision.action).__name__
    return {"status": decision.status.to_manifest(), "action": action}


if __name__ == "__main__":
    print(json.dumps(make_pass(**json.load(sys.stdin))))
