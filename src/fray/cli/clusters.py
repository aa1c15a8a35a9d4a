"""Which cluster a command means, and what a user reads while it is silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fray.cli.streams import OutputStream
from fray.cluster.base import Cluster
from fray.cluster.cluster_spec import (
    ClusterSpec,
    KubernetesSpec,
    LocalSpec,
    RaySpec,
    check_available,
    parse_cluster_spec,
)
from fray.errors import ClusterSpecError
from fray.vocabulary import ENV_CLUSTER_SPEC

__all__ = ["choose_cluster", "open_cluster", "patience"]

PATIENCE_SECONDS = 5.0
"""After that a line says what the command waits for."""


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


def open_cluster(
    spec: ClusterSpec, *, environ: Mapping[str, str], working_dir: Path | None = None
) -> Cluster:
    """Return the cluster of a spec; nothing is asked of it yet.

    `working_dir` is where processes of this machine start, whatever their jobs say.

    Raises:
        SettingError: The state directory of this machine isn't known.
        ClusterUnavailableError: Ray isn't installed here.
    """
    if isinstance(spec, KubernetesSpec):
        from fray.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import

        return KubernetesCluster(spec, environ=environ, brief=True)
    if isinstance(spec, RaySpec):
        from fray.cluster import RayCluster  # noqa: PLC0415 - as above

        return RayCluster(spec.address, environ=environ)
    assert isinstance(spec, LocalSpec)
    from fray.cluster import LocalCluster  # noqa: PLC0415 - not needed for a cluster

    # Threads are for a program that debugs its own callables; a command has none.
    return LocalCluster(replace(spec, mode="process"), environ=environ, working_dir=working_dir)


@contextmanager
def patience(notes: OutputStream, spec: ClusterSpec, *, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Tell within a context that takes long what is waited for."""
    if not isinstance(spec, KubernetesSpec):
        yield
        return
    where = "the current context" if spec.context is None else f"context {spec.context}"
    text = f"no answer from the API server of {where} for {seconds:.0f} s; still trying\n"
    timer = threading.Timer(seconds, notes.write, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
