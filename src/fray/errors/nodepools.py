"""Google Cloud can't be asked for node pools, or refuses one: its user or administrator acts."""

from __future__ import annotations

from fray.errors.request import RequestError
from fray.errors.surroundings import SurroundingsError

__all__ = [
    "GkeClusterError",
    "GkeCredentialsError",
    "NodePoolError",
    "PoolInUseError",
]


class GkeClusterError(RequestError, ValueError):
    """Nothing tells which GKE cluster is meant."""

    message = "no GKE cluster is known: {problem}"
    next_step = (
        "Fetch its credentials (`gcloud container clusters get-credentials NAME --location=LOCATION`), "
        "or name it: --gke projects/PROJECT/locations/LOCATION/clusters/NAME."
    )

    problem: str


class GkeCredentialsError(SurroundingsError):
    """There are no Application Default Credentials, or they can't be used."""

    message = "no credentials for Google Cloud: {problem}"
    next_step = (
        "Log in with `gcloud auth application-default login`; on machines of Google Cloud and in pods, use a "
        "service account (Workload Identity Federation)."
    )

    problem: str


class NodePoolError(SurroundingsError):
    """GKE refused or gave up an operation.

    `reason` is a stable word and `retry` says when another try may help (`never`, `later`, `soon`); both come
    from `fray.nodepools.answers`. `said` are GKE's own words.
    """

    message = "{subject}: {sentence}"
    next_step = "{remedy}"

    subject: str
    reason: str
    retry: str
    sentence: str
    remedy: str
    said: str


class PoolInUseError(RequestError):
    """Pools were to be deleted whose use isn't known, or that live jobs use."""

    message = "no pool is deleted: {problem}"
    next_step = "{remedy}"

    problem: str
    remedy: str
