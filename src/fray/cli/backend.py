"""Where the commands find jobs: one of two backends, which a cluster spec names.

`Backend` is what commands ask; what they print is the same for all, since it is made from FrayJobs. Which
backend it is, is decided here and by `run`, `apply` and `doctor`, which mean something else on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from fray.cli.log_request import LogRequest
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import (
    ClusterSpec,
    KubernetesSpec,
    LocalSpec,
    check_available,
    parse_cluster_spec,
)
from fray.errors import ClusterSpecError
from fray.vocabulary import ENV_CLUSTER_SPEC
from fray.wire.frayjob import FrayJob

__all__ = ["Backend", "choose_cluster", "open_backend"]


class Backend(Protocol):
    """The jobs of a place."""

    @property
    def place(self) -> str:
        """Where they are, in words."""
        ...

    def list_jobs(self) -> list[FrayJob]:
        """Return all jobs, sorted by name."""
        ...

    def find_job(self, name: str) -> FrayJob:
        """Return a job; raises `JobNotFoundError`."""
        ...

    def stop_job(self, name: str, *, wait: bool) -> FrayJob:
        """Ask a job to end, and return it; with `wait` once it has.

        Raises `JobNotFoundError`, or `JobNotRunningError` where it has finished already.
        """
        ...

    def wait_finished(self, names: Sequence[str], timeout: float | None) -> list[FrayJob]:
        """Return jobs once all have finished; raises `JobNotFoundError` or `WaitTimeoutError`."""
        ...

    def show_logs(self, request: LogRequest, output: Stream) -> None:
        """Print what a job's hosts printed; raises `JobNotFoundError` or `LogsNotFoundError`."""
        ...


def choose_cluster(text: str | None, namespace: str | None, *, environ: Mapping[str, str]) -> ClusterSpec:
    """Return the cluster that `--cluster` and `-n` mean: else FRAY_CLUSTER_SPEC's, else this machine.

    Raises:
        ClusterSpecError: The spec can't be read, or a namespace is given and there are none.
        ClusterUnavailableError: This version has no such backend.
    """
    spec = parse_cluster_spec(text or environ.get(ENV_CLUSTER_SPEC) or "local")
    check_available(spec)
    if namespace is None:
        return spec
    if not isinstance(spec, KubernetesSpec):
        remedy = f"Say which cluster: --cluster 'k8s?namespace={namespace}', or set {ENV_CLUSTER_SPEC}."
        raise ClusterSpecError(str(spec), "it has no namespaces, and -n names one", remedy)
    return replace(spec, namespace=namespace)


def open_backend(spec: ClusterSpec, *, environ: Mapping[str, str], notes: Stream) -> Backend:
    """Return the backend of a spec; of the cluster nothing is asked yet.

    Raises:
        SettingError: The state directory of this machine isn't known.
    """
    if isinstance(spec, KubernetesSpec):
        from fray.cli.kubernetes_backend import KubernetesBackend  # noqa: PLC0415 - slow to import

        return KubernetesBackend(spec, environ=environ, notes=notes)
    assert isinstance(spec, LocalSpec)
    from fray.cli.local_backend import LocalBackend  # noqa: PLC0415 - not needed for a cluster

    return LocalBackend.of(environ)
