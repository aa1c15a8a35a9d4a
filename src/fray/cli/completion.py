"""What shells get when Tab is pressed: names of jobs and of accelerators. Errors complete nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fray.accelerators import generations, legal_gpu_counts, legal_gpu_types, resolve_gpu_type
from fray.errors import FrayError, UnknownAcceleratorError

__all__ = ["complete_gpu", "complete_job", "complete_tpu"]

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
    from fray.cli.clusters import choose_cluster, open_cluster  # noqa: PLC0415 - not for accelerators
    from fray.cluster.cluster_spec import LocalSpec  # noqa: PLC0415

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


def complete_tpu(typed: str) -> list[str]:
    """Return the names of TPU slices that begin with what is typed, also under other spellings (`v5e-8`)."""
    names = [
        f"{spelling}-{size}"
        for generation in generations()
        for spelling in generation.spellings
        for size in generation.sizes
    ]
    return [name for name in names if name.startswith(typed)]


def complete_gpu(typed: str) -> list[str]:
    """Return GPU types that begin with what is typed; behind a colon, the counts that there are."""
    name, colon, count = typed.partition(":")
    if colon:
        try:
            counts = legal_gpu_counts(resolve_gpu_type(name))
        except UnknownAcceleratorError:
            return []
        return [f"{name}:{each}" for each in counts if str(each).startswith(count)]
    types = legal_gpu_types()
    names = [*(each.removeprefix("nvidia-").removeprefix("tesla-") for each in types), *types]
    # In the case in which it was typed, since shells drop what doesn't begin so.
    return [typed + each[len(typed) :] for each in names if each.startswith(typed.lower())]
