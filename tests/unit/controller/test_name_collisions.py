"""Two FrayJobs whose JobSets would have one name: the first has it, the second is told what to do."""

from __future__ import annotations

from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.plan.gang import derive_gang
from fray.plan.names import build_jobset_name
from fray.testing.memory import MemoryServer
from fray.wire.frayjob import FrayJob
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import frayjob, passes, reconcile_for_an_hour

LONG = "x" * 63
"""Its JobSets' names are cut and hashed."""
JOBSET = build_jobset_name(
    LONG, attempt=1, gang=derive_gang(FrayJob.from_manifest({**frayjob(LONG), "status": {}}).spec)
)
SHORT = JOBSET.removesuffix("-a1")
"""Its JobSets' names aren't, and are the same."""


def test_a_job_whose_jobsets_name_is_another_jobs_is_refused_with_what_to_do() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        (jobset,) = server.all(JOBSETS)
        assert [owner["name"] for owner in jobset["metadata"]["ownerReferences"]] == [LONG]
        told = {
            name: {c["type"]: (c["reason"], c["message"]) for c in job["status"]["conditions"]}
            for name in (LONG, SHORT)
            if (job := server.find(FRAYJOBS, name)) is not None
        }
        assert told[LONG]["Scheduled"][0] == "HostsStarting"
        message = f"JobSet {JOBSET} is that of FrayJob {LONG}: this job needs another name"
        assert told[SHORT]["Scheduled"] == ("NameTaken", message)
        assert "DELETE" not in [call.method for call in server.calls]
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([frayjob(LONG), frayjob(SHORT)], check)
