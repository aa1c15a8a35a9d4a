"""`fray apply`: makes the FrayJobs of a file be on a cluster, and tells what was there already.

Nothing is waited for. Other objects of the file are kubectl's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

from fray.cli.cluster_run import place_in_namespace
from fray.cli.kubernetes_backend import patience
from fray.cli.requested_job import load_jobs
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec
from fray.cluster.kubernetes.cluster import KubernetesCluster
from fray.cluster.kubernetes.whole_jobs import Applied, KubernetesJobs
from fray.errors import UnsupportedFeatureError

__all__ = ["apply_file"]


def apply_file(
    file: str,
    spec: ClusterSpec,
    *,
    environ: Mapping[str, str],
    stdin: BinaryIO,
    output: Stream,
    notes: Stream,
) -> None:
    """Create the FrayJobs of a file, or change what may be changed of those that are there.

    Raises:
        RequestError: A job is none that the API server takes; where this shows only there, jobs before it
            in the file have been made, as their lines say.
        SurroundingsError: The cluster doesn't let it.
    """
    if not isinstance(spec, KubernetesSpec):
        reason = "a job on this machine lives no longer than the command that runs it"
        alternative = f"Use `fray run -f {file}`, or name a cluster: --cluster 'k8s?namespace=...'."
        raise UnsupportedFeatureError("fray apply on this machine", reason, alternative)
    loaded = load_jobs(file, stdin=stdin)
    for other in loaded.others:
        notes.write(f"{other} in the same file: left out; `kubectl apply` makes it\n")
    placed = [(place_in_namespace(spec, job), manifest) for job, manifest in loaded.jobs]
    opened: dict[KubernetesSpec, KubernetesJobs] = {}
    for own_spec, manifest in placed:
        if own_spec not in opened:
            opened[own_spec] = KubernetesJobs(KubernetesCluster(own_spec, environ=environ))
        jobs, name = opened[own_spec], manifest["metadata"]["name"]
        with patience(notes, own_spec):
            applied = jobs.apply(manifest)
        phase = ""
        if applied is not Applied.CREATED:
            found = jobs.find_job(name).status.phase
            phase = f" (it is {found})" if found else ""
        output.write(f"frayjob.fray.dev/{name} {applied}{phase}\n")
