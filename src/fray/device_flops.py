"""An earlier API's name for how fast accelerators are; the figures live in `fray.accelerators`."""

from __future__ import annotations

import warnings
from typing import Literal, TypeAlias

from fray.accelerators.peak_flops import (
    list_peak_flops,
    lookup_jax_flops,
    lookup_peak_flops,
    read_jax_device_kind,
)
from fray.offered_names import offer_names

__all__ = [
    "DEVICE_FLOPS",
    "FlopDtype",
    "device_flops",
    "device_flops_for_jax_device",
    "jax_device_kind_to_fray_device_type",
]

FlopDtype: TypeAlias = Literal["bf16", "fp16"]
DEVICE_FLOPS = list_peak_flops()


def device_flops(device_type: str, dtype: str = "bf16") -> float | None:
    """Return the dense FLOP/s of one chip at most; None, with a warning, where they aren't known.

    Args:
        device_type: A type in any case: `H100`, `A100-80G`, `v5litepod-16` (of a slice one chip counts).
        dtype: `bf16` or `fp16`.
    """
    found = lookup_peak_flops(device_type, dtype)
    if found is None:
        warnings.warn(f"the FLOP/s of {device_type!r} at {dtype!r} aren't known", stacklevel=2)
    return found


def jax_device_kind_to_fray_device_type(kind: str) -> str:
    """Return the type of what JAX calls a `device_kind`; one that isn't known comes back in lower case."""
    return read_jax_device_kind(kind) or kind.lower()


def device_flops_for_jax_device(jax_device_kind: str, dtype: str = "bf16") -> float | None:
    """Return the same for one device of JAX's, by its `device_kind`: `TPU v4`; of v3, half a chip."""
    flops = lookup_jax_flops(jax_device_kind, dtype)
    if flops is None:
        warnings.warn(f"the FLOP/s of {jax_device_kind!r} at {dtype!r} aren't known", stacklevel=2)
    return flops


offer_names(__name__)
