"""What a FrayJob names of its pods by itself: resources of one host, variables, ports and tolerations.

Everything else goes through `podTemplate`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from fray.wire.model import LabelValue, Quantity, WireModel
from fray.wire.pod_schema import ENV_VALUE_FROM

__all__ = [
    "ContainerPort",
    "EnvFromSource",
    "EnvVar",
    "Gpu",
    "LocalReference",
    "Resources",
    "Toleration",
    "Tpu",
]


class EnvVar(WireModel):
    """An environment variable of the job's container: a value, or a reference to one."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """Name of the variable."""
    value: Annotated[str | None, Field(max_length=131072)] = None
    """Literal value. $(NAME) refers to a variable defined earlier; $$ is a dollar sign."""
    value_from: Annotated[dict[str, Any], WithJsonSchema(ENV_VALUE_FROM)] | None = None
    """Source of the value, as in a pod: secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef."""


class LocalReference(WireModel):
    """A Secret or ConfigMap in the job's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the object."""
    optional: bool | None = None
    """Whether the pod starts without it."""


class EnvFromSource(WireModel):
    """All keys of a Secret or a ConfigMap as environment variables."""

    prefix: Annotated[str | None, Field(max_length=253, pattern=r"^([-._a-zA-Z][-._a-zA-Z0-9]*)?$")] = None
    """Put before each key."""
    config_map_ref: LocalReference | None = None
    """The ConfigMap to read."""
    secret_ref: LocalReference | None = None
    """The Secret to read. Prefer this to plain values for anything confidential."""


class Toleration(WireModel):
    """A node taint that the job's pods may ignore."""

    key: Annotated[
        str | None,
        Field(
            max_length=317,
            pattern=r"^(([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        ),
    ] = None
    """Taint key; empty with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How key and value are compared; Equal when unset."""
    value: LabelValue | None = None
    """Taint value, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; all effects when unset."""
    toleration_seconds: Annotated[int | None, Field(ge=0, le=2147483647)] = None
    """How long a NoExecute taint is tolerated, in seconds; for ever when unset."""


class ContainerPort(WireModel):
    """A named TCP port on which every host of the job listens."""

    name: Annotated[str, Field(max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the port. The process finds its number in FRAY_PORT_<NAME>."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """Number of the port inside the pod."""


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
