"""What one host of a job asks for: CPU, memory, disk and at most one kind of accelerator."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fray.wire.model import Quantity, WireModel

__all__ = ["Gpu", "Resources", "Tpu"]


class Tpu(WireModel):
    """A TPU slice type; hosts and chips follow from it."""

    type: Annotated[str, Field(max_length=32)]
    """Slice type: v5p-16, v5litepod-16 (v5e-16), v6e-8, tpu7x-8, or generation and topology: v5p-2x2x2."""
    topology: Annotated[str | None, Field(max_length=16)] = None
    """Topology of the slice, such as 4x4 or 2x2x2; the usual one of the type when unset."""
    chips_per_host: Annotated[int | None, Field(ge=1, le=8)] = None
    """Chips of one host. Only 2x4 slices leave a choice: 8 (one host, the default) or 4 (two hosts)."""
    multislice: Literal["Enabled", "Disabled"] | None = None
    """Whether the slices work together over the data centre network (MEGASCALE_* variables).

    When unset, they do if each has several hosts: GKE documents multislice for those only.
    """


class Gpu(WireModel):
    """GPUs of one host."""

    type: Annotated[str, Field(max_length=32)]
    """GKE's accelerator name, such as nvidia-l4 or nvidia-h100-80gb. Only `fray` reads others, as H100."""
    count: Annotated[int, Field(ge=1, le=16)] = 1
    """GPUs on each host."""


class Resources(WireModel):
    """Resources of one host (one pod)."""

    cpu: Quantity | None = None
    """CPU request, such as "8" or 500m; capped at what the accelerator's host has."""
    memory: Quantity | None = None
    """Memory request, such as 32Gi; capped at what the accelerator's host has."""
    disk: Quantity | None = None
    """Ephemeral storage request, such as 50Gi."""
    tpu: Tpu | None = None
    """TPU slice type. At most one of tpu and gpu."""
    gpu: Gpu | None = None
    """GPUs. At most one of tpu and gpu."""
