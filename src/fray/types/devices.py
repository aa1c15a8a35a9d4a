"""The accelerator that each host of a job has: none, GPUs, or its part of a TPU slice.

Names are looked up where they are written; which exist, and of how many hosts and chips they are, is
`fray.accelerators`' to know.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from fray.accelerators import TpuSlice, lookup_gpu, lookup_tpu, resolve_gpu_type
from fray.accelerators.peak_flops import lookup_peak_flops
from fray.errors import InvalidRequestError
from fray.types.checks import check_count, check_text, choose_spelling, show_value

__all__ = ["ANY_GPU", "CpuConfig", "DeviceConfig", "DeviceKind", "GpuConfig", "TpuConfig"]

DeviceKind: TypeAlias = Literal["cpu", "gpu", "tpu"]
"""What a job computes on."""
ANY_GPU: Final = "auto"
"""The GPU type that leaves the choice to the machine; a cluster needs the type."""


class _Accelerator(abc.ABC):
    """How fast an accelerator is, and what programs on it find in their environment."""

    variant: str

    @property
    def type(self) -> str:
        """The type as it was written; the same as `variant`."""
        return self.variant

    @abc.abstractmethod
    def chip_count(self) -> int:
        """Return the chips of one host, or of a slice."""

    def device_flops(self, dtype: str = "bf16") -> float:
        """Return the dense FLOP/s of one chip at most.

        Raises:
            InvalidRequestError: They aren't known for this type and `dtype`.
        """
        found = lookup_peak_flops(self.variant, dtype)
        if found is None:
            remedy = "Measure them, or see fray.device_flops for the types that are known."
            raise InvalidRequestError(
                "dtype", f"the FLOP/s of {self.variant!r} at {dtype!r} aren't known", remedy
            )
        return found

    def total_flops(self, dtype: str = "bf16") -> float:
        """Return the dense FLOP/s of all chips of this device at most; raises as `device_flops`."""
        return self.device_flops(dtype) * self.chip_count()

    def default_env_vars(self) -> dict[str, str]:
        """Return the variables with which JAX finds the device: it chooses the platform itself."""
        return {"JAX_PLATFORMS": ""}


@dataclass(frozen=True)
class CpuConfig:
    """Hosts without an accelerator."""

    kind: ClassVar[DeviceKind] = "cpu"
    variant: ClassVar[str] = "cpu"

    def chip_count(self) -> int:
        """Return 0."""
        return 0

    def device_flops(self, dtype: str = "bf16") -> float:
        """Raises InvalidRequestError: what processors do differs too much between machines."""
        remedy = "Measure them on the machine."
        raise InvalidRequestError("dtype", f"the FLOP/s of processors at {dtype!r} aren't known", remedy)

    def default_env_vars(self) -> dict[str, str]:
        """Return the variables with which JAX keeps to the processors."""
        return {"JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True, init=False)
class GpuConfig(_Accelerator):
    """Hosts with `count` GPUs each.

    Args:
        type: GKE's name or a shorter one (`H100`, `A100-80GB`), in any case, or `auto`: whatever the
            machine has. Also spelled `variant` and `gpu_type`.
        count: GPUs of each host; only numbers that machines come with.

    Raises:
        UnknownAcceleratorError: There is no such GPU on GKE; the error holds the nearest types.
        AcceleratorShapeError: No machine has as many of it; the error holds the legal counts.
        InvalidRequestError: `type` is missing, or `count` is no number.
    """

    kind: ClassVar[DeviceKind] = "gpu"
    variant: str
    count: int

    def __init__(
        self,
        type: str | None = None,  # noqa: A002 - the name of the earlier APIs
        count: int = 1,
        *,
        variant: str | None = None,
        gpu_type: str | None = None,
    ) -> None:
        given = choose_spelling("GpuConfig", {"type": type, "variant": variant, "gpu_type": gpu_type})
        check_text("GpuConfig.type", given, remedy="Name a GPU type, such as 'H100', 'L4' or 'auto'.")
        check_count("GpuConfig.count", count, least=1, most=16)
        if given.lower() != ANY_GPU:
            lookup_gpu(resolve_gpu_type(given), count=count)
        object.__setattr__(self, "variant", given)
        object.__setattr__(self, "count", count)

    @property
    def gke_type(self) -> str | None:
        """The type as GKE spells it; None for `auto`."""
        return None if self.variant.lower() == ANY_GPU else resolve_gpu_type(self.variant)

    def chip_count(self) -> int:
        """Return the GPUs of one host."""
        return self.count


@dataclass(frozen=True, init=False)
class TpuConfig(_Accelerator):
    """One TPU slice; how many hosts it has, and how many chips each of them, follows from its type.

    Args:
        type: A slice type: `v5p-16`, `v5litepod-16` (`v5e-16`), `v6e-8`, or generation and topology,
            `v5p-2x2x2`. Also spelled `variant` and `tpu_type`.
        count: Kept and not used: the earlier APIs wanted a number of chips beside the type.
        topology: A topology of as many chips, where the usual one isn't wanted.
        chips_per_host: 8 (the default) or 4, where slices of topology 2x4 leave a choice.

    Raises:
        UnknownAcceleratorError: There is no such slice on GKE; the error holds the nearest types.
        AcceleratorShapeError: The type doesn't come in that topology or with that many chips per host.
        InvalidRequestError: `type` is missing, or a number is none.
    """

    kind: ClassVar[DeviceKind] = "tpu"
    variant: str
    count: int | None
    topology: str | None
    chips_per_host: int | None

    def __init__(
        self,
        type: str | None = None,  # noqa: A002 - the name of the earlier APIs
        count: int | None = None,
        topology: str | None = None,
        *,
        chips_per_host: int | None = None,
        variant: str | None = None,
        tpu_type: str | None = None,
    ) -> None:
        given = choose_spelling("TpuConfig", {"type": type, "variant": variant, "tpu_type": tpu_type})
        if isinstance(given, list | tuple):
            remedy = (
                f"Choose one, such as {show_value(given[0])}." if given else "Choose one, such as 'v5p-8'."
            )
            raise InvalidRequestError("TpuConfig.type", "is a list of alternatives, not one type", remedy)
        check_text("TpuConfig.type", given, remedy="Name a slice type, such as 'v5p-16' or 'v6e-8'.")
        if count is not None:
            check_count("TpuConfig.count", count, least=1, most=100_000)
        if topology is not None:
            check_text(
                "TpuConfig.topology", topology, remedy="Write it as '4x4' or '2x2x2', or leave it out."
            )
        if chips_per_host is not None:
            check_count("TpuConfig.chips_per_host", chips_per_host, least=1, most=8)
        lookup_tpu(given, topology=topology, chips_per_host=chips_per_host)
        values: dict[str, Any] = {
            "variant": given,
            "count": count,
            "topology": topology,
            "chips_per_host": chips_per_host,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def slice(self) -> TpuSlice:
        """The slice that the type means."""
        return lookup_tpu(self.variant, topology=self.topology, chips_per_host=self.chips_per_host)

    def chip_count(self) -> int:
        """Return the chips of the whole slice."""
        return self.slice.chips

    def vm_count(self) -> int:
        """Return the hosts of the slice."""
        return self.slice.hosts


DeviceConfig: TypeAlias = CpuConfig | GpuConfig | TpuConfig
"""The device of a job, of any kind."""
