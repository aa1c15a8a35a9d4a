"""The few parts of a pod that a FrayJob names by itself; everything else goes through `podTemplate`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from fray.wire.model import LabelValue, WireModel
from fray.wire.pod_schema import ENV_VALUE_FROM

__all__ = ["ContainerPort", "EnvFromSource", "EnvVar", "LocalReference", "Toleration"]


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
