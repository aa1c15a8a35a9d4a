"""What shells get when Tab is pressed: names of jobs. Errors complete nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fray.cli.clusters import choose_cluster, open_cluster
from fray.cluster.cluster_spec import LocalSpec
from fray.errors import FrayError

__all__ = ["complete_job"]

PATIENCE_SECONDS = 2.0
"""A cluster that doesn't answer within that time completes nothing."""


def complete_job(
    typed: str,
    *,
    cluster: str | None,
    namespace: str | None,
    environ: Mapping[str, str],
    patience: float = PATIENCE_SECONDS,
) -> list[str]:
    """Return the names of jobs that begin with what is typed, on the cluster that the command line means."""
    found: list[str] = []
    try:
        spec = choose_cluster(cluster, namespace, environ=environ)
    except FrayError:
        return []

    def ask() -> None:
        try:
            found.extend(job.metadata.name for job in open_cluster(spec, environ=environ).get_all())
        except FrayError:
            return

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(None if isinstance(spec, LocalSpec) else patience)  # files of this machine don't keep silent
    return [name for name in list(found) if name.startswith(typed)]
