"""How much memory the operator takes among objects that are large, or many: `python -m ... pods`.

A real API server is filled, then the operator is started as the process that it is in a pod. Its peak
resident memory is printed, once every object is known and no pass is due. `pods` are 100 of 1.3 MB with a
FrayJob's label in somebody else's namespace, `frayjobs` 100 FrayJobs of 1.3 MB, and `gang` the 2,304 pods of
one job.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from e2e.cluster.build import CONTROL_PLANE, build, module_source
from e2e.cluster.controlplane import ControlPlane
from fray.vocabulary import LABEL_JOB
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_subprocess import OperatorSubprocess, reserved_port
from tests.integration.frayjobs import CRD_COLLECTION, await_served

CRDS = Path(__file__).parents[3] / "crds"
COUNT, SIZE = 100, 1_300_000
GANG = "tpu7x-16x16x36"
IDLE = 'fray_queued_objects{kind="FrayJob"} 0.0'
"""A line of /metrics."""
OURS, OTHERS = "ours", "others"


def main() -> None:
    """Print the peak resident memory of an operator in MiB, in the situation that was asked for."""
    fill = {"pods": fill_with_pods, "frayjobs": fill_with_frayjobs, "gang": fill_with_a_gang}[sys.argv[1]]
    with ControlPlane(build(CONTROL_PLANE)) as plane, tempfile.TemporaryDirectory() as folder:
        api = plane.api()
        jobset = module_source("jobset") / "charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml"
        for path in (*sorted(CRDS.glob("*.yaml")), jobset):
            crd = yaml.safe_load(path.read_text(encoding="utf-8"))
            assert api.post(CRD_COLLECTION, crd).ok
            await_served(api, f"{CRD_COLLECTION}/{crd['metadata']['name']}")
        for namespace in (OURS, OTHERS):
            assert api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok
        peaks = []
        for run in ("first", "again"):
            with (
                reserved_port() as port,
                OperatorSubprocess(
                    plane.kubeconfig, Path(folder), name=run, port=port, FRAY_LEASE_NAMESPACE=OURS
                ) as operator,
            ):
                if run == "first":
                    fill(Hands(api, OURS), Hands(api, OTHERS))
                # The last in every list: all others are known when its pass comes.
                Hands(api, OURS).submit(f"last-{run}")
                Hands(api, OURS).await_jobset(f"last-{run}-a1")
                eventually(lambda: IDLE in operator.fetch("/metrics")[1], told=lambda: operator.log)
                peaks.append(read_peak(operator.process.pid))
                assert operator.process.poll() is None, operator.log
    print(f"{sys.argv[1]}: peak {peaks[0]:.0f} MiB while they came, {peaks[1]:.0f} MiB after a restart")


def read_peak(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def many(create: Callable[[int], None]) -> None:
    """Do this for each of so many large objects."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(COUNT)))


def fill_with_pods(_ours: Hands, others: Hands) -> None:
    """Make pods that only look like ones of a FrayJob."""

    def create(number: int) -> None:
        metadata = {"name": f"pod-{number}", "labels": {LABEL_JOB: "x"}}
        env = [{"name": "MUCH", "value": "x" * SIZE}]
        spec = {"containers": [{"name": "main", "image": "none", "env": env}]}
        made = others.api.post(f"{others.core}/pods", {"metadata": metadata, "spec": spec})
        assert made.ok, made.body

    many(create)


def fill_with_frayjobs(_ours: Hands, others: Hands) -> None:
    """Make FrayJobs that are as large as they may be."""

    def create(number: int) -> None:
        env = [{"name": "MUCH", "value": secrets.token_urlsafe(SIZE * 3 // 4)}]
        template = {"spec": {"containers": [{"name": "main", "env": env}]}}
        others.submit(f"job-{number}", podTemplate=template, suspend=True)

    many(create)


def fill_with_a_gang(ours: Hands, _others: Hands) -> None:
    """Make one job, and all pods of its hosts."""
    ours.submit("gang", resources={"tpu": {"type": GANG}})
    ours.run_all(ours.await_jobset("gang-a1"))


if __name__ == "__main__":
    main()
