"""`fray apply`: makes the FrayJobs of a file be on a cluster, and tells what was there already.

Nothing is waited for. Other objects of the file are kubectl's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

from fray.cli.clusters import open_cluster, patience
from fray.cli.requested_job import load_jobs
from fray.cli.run import place_in_namespace
from fray.cli.streams import OutputStream
from fray.cluster.answers import Applied
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import ClusterSpec
from fray.types import JobId

__all__ = ["apply_file"]


def apply_file(
    file: str,
    spec: ClusterSpec,
    *,
    environ: Mapping[str, str],
    stdin: BinaryIO,
    output: OutputStream,
    notes: OutputStream,
) -> None:
    """Create the FrayJobs of a file, or change what may be changed of those that are there.

    Raises:
        RequestError: A job is none that the API server takes; where this shows only there, jobs before it
            in the file have been made, as their lines say.
        SurroundingsError: The cluster doesn't let it.
    """
    loaded = load_jobs(file, stdin=stdin)
    for other in loaded.others:
        notes.write(f"{other} in the same file: left out; `kubectl apply` makes it\n")
    placed = [(place_in_namespace(spec, each.job), each) for each in loaded.jobs]
    opened: dict[ClusterSpec, Cluster] = {}
    for own_spec, each in placed:
        if own_spec not in opened:
            opened[own_spec] = open_cluster(own_spec, environ=environ)
        cluster, name = opened[own_spec], each.job.metadata.name
        with patience(notes, own_spec):
            applied = cluster.apply(each.job, workspace=each.workspace)
        phase = ""
        if applied is not Applied.CREATED:
            found = cluster.get(JobId(name)).status.phase
            phase = f" (it is {found})" if found else ""
        output.write(f"frayjob.fray.dev/{name} {applied}{phase}\n")
