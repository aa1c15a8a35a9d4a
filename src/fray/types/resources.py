"""What the hosts of a job have, how many there are, and where they may stand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fray.errors import InvalidRequestError
from fray.types.checks import (
    check_count,
    check_image,
    check_texts,
    choose_spelling,
    refuse_keywords,
    show_value,
)
from fray.types.devices import ANY_GPU, CpuConfig, DeviceConfig, GpuConfig, TpuConfig
from fray.types.sizes import parse_cores, parse_size, warn_of_missing_unit

__all__ = ["ANYWHERE", "MOST_REPLICAS", "GangShape", "ResourceConfig", "warn_of_hosts"]

ANYWHERE: Final = "*"
"""The one region that stands for all of them."""
MOST_REPLICAS: Final = 10_000
"""As the CRD has it."""


class GangShape(NamedTuple):
    """How many hosts a job has: GPU and CPU jobs are one slice whose hosts are the replicas."""

    slices: int
    vms_per_slice: int
    chips_per_vm: int


@dataclass(frozen=True, init=False)
class ResourceConfig:
    """The hosts of a job: what each has, and how many there are.

    Args:
        cpu: Cores that each host asks for: 8, 0.5, "500m".
        ram: Memory that each host asks for: "4g" (GiB), "512m" (MiB), "32Gi", "100G" (10^9), or bytes.
            Without a unit and below 1 MiB it is GiB, with a warning.
        disk: Local disk that each host asks for, written as `ram`.
        device: Its accelerator.
        replicas: TPU: slices. GPU: hosts of one gang. CPU: copies. Also spelled `count`. All start
            together, and one that fails ends the attempt.
        preemptible: Whether it may run on spot nodes.
        spot: Whether it may run on spot nodes only.
        regions: Regions that it may run in; None, or "*" alone, for any.
        zones: Zones that it may run in; None for any. Also spelled `zone`, for a single one.
        image: Container image; that of the environment comes first.

    Raises:
        InvalidRequestError: A value means nothing; it says which and what to write.
    """

    cpu: float | str
    ram: int | float | str
    disk: int | float | str
    device: DeviceConfig
    replicas: int
    preemptible: bool
    spot: bool
    regions: tuple[str, ...] | None
    zones: tuple[str, ...] | None
    image: str | None

    if not TYPE_CHECKING:  # type checkers know `__init__`

        def __new__(cls, *args, **kwargs):
            """Warn of `replicas` that may be the hosts of slices, as in an earlier API."""
            if "spot" not in kwargs:  # an earlier API has no such part, and `dataclasses.replace` names all
                replicas = args[4] if len(args) > 4 else kwargs.get("replicas")
                warn_of_hosts(args[3] if len(args) > 3 else kwargs.get("device"), replicas, stacklevel=2)
            return super().__new__(cls)

    @refuse_keywords(
        "ResourceConfig",
        target_cluster="Leave it out: create_cluster(...) or FRAY_CLUSTER_SPEC says where jobs run.",
        device_alternatives="Name one type: ResourceConfig.with_tpu('v5p-8').",
    )
    def __init__(  # noqa: PLR0913, PLR0917 - a request has as many parts, all with defaults
        self,
        cpu: float | str = 1,
        ram: float | str = "4g",
        disk: float | str = "10g",
        device: DeviceConfig | None = None,
        replicas: int | None = None,
        preemptible: bool = True,  # noqa: FBT001, FBT002 - its place in the earlier APIs
        regions: Sequence[str] | None = None,
        *,
        spot: bool = False,
        zones: Sequence[str] | None = None,
        image: str | None = None,
        count: int | None = None,
        zone: str | None = None,
    ) -> None:
        parse_cores("ResourceConfig.cpu", cpu)
        for name, size in (("ram", ram), ("disk", disk)):
            parse_size(f"ResourceConfig.{name}", size)
            warn_of_missing_unit(f"ResourceConfig.{name}", size, stacklevel=3)
        wanted = choose_spelling("ResourceConfig", {"replicas": replicas, "count": count}, default=1)
        if not isinstance(preemptible, bool):
            remedy = "Give True for spot nodes as well, False to keep off them."
            raise InvalidRequestError("ResourceConfig.preemptible", f"is {show_value(preemptible)}", remedy)
        if not isinstance(spot, bool):
            remedy = "Give True for spot nodes only, False for any nodes."
            raise InvalidRequestError("ResourceConfig.spot", f"is {show_value(spot)}", remedy)
        if spot and not preemptible:
            remedy = "Leave one out: spot=True is for spot nodes only, preemptible=False for none."
            raise InvalidRequestError("ResourceConfig.spot", "is True and preemptible is False", remedy)
        if image is not None:
            check_image("ResourceConfig.image", image)
        if zone is not None:
            zones = choose_spelling("ResourceConfig", {"zones": zones, "zone": [zone]})
        values: dict[str, Any] = {
            "cpu": cpu,
            "ram": ram,
            "disk": disk,
            "device": _device(device),
            "replicas": check_count("ResourceConfig.replicas", wanted, least=1, most=MOST_REPLICAS),
            "preemptible": preemptible,
            "spot": spot,
            "regions": _regions(regions),
            "zones": _places("zones", zones, example="us-central1-a"),
            "image": image,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """The same as `replicas`."""
        return self.replicas

    @property
    def zone(self) -> str | None:
        """The zone where there is a single one; None for any."""
        return self.zones[0] if self.zones is not None and len(self.zones) == 1 else None

    def device_flops(self, dtype: str = "bf16") -> float:
        """Return the dense FLOP/s of one chip at most.

        Raises:
            InvalidRequestError: They aren't known, as those of processors.
        """
        return self.device.device_flops(dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Return the dense FLOP/s of the chips of all replicas at most; raises as `device_flops`."""
        return self.device_flops(dtype) * self.chip_count()

    def scale(
        self,
        factor: float | None = None,
        /,
        *,
        cpu: float | None = None,
        ram: float | None = None,
        disk: float | None = None,
    ) -> ResourceConfig:
        """Return the same hosts with so many times the cores, memory and disk.

        Args:
            factor: Of all three.
            cpu: Of the cores alone; 1 where it is None.
            ram: Of the memory alone.
            disk: Of the disk alone.

        Raises:
            InvalidRequestError: `factor` stands beside others, or a factor isn't a number above 0.
        """
        single = {"cpu": cpu, "ram": ram, "disk": disk}
        if factor is not None and any(each is not None for each in single.values()):
            remedy = "Give one factor for all, or factors by name."
            raise InvalidRequestError("ResourceConfig.scale", "has a factor for all and others", remedy)
        factors = {name: factor if each is None else each for name, each in single.items()}
        for name, each in factors.items():
            known = isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < float("inf")
            if each is not None and not known:
                remedy = "Give a number above 0, such as 0.5 or 2."
                raise InvalidRequestError(f"ResourceConfig.scale {name}", f"is {show_value(each)}", remedy)
        cores = Fraction(parse_cores("ResourceConfig.cpu", self.cpu))
        scaled: dict[str, Any] = {"cpu": float(cores * Fraction(factors["cpu"] or 1))}
        for name in ("ram", "disk"):
            size = parse_size(f"ResourceConfig.{name}", getattr(self, name))
            scaled[name] = f"{round(size * Fraction(factors[name] or 1))}"
        return replace(self, **{name: value for name, value in scaled.items() if factors[name] is not None})

    def chip_count(self) -> int:
        """Return the chips of all replicas: TPU chips or GPUs, 0 without an accelerator."""
        return self.device.chip_count() * self.replicas

    def gang_shape(self) -> GangShape:
        """Return how many slices, hosts of each and chips of each host there are."""
        if isinstance(self.device, TpuConfig):
            found = self.device.slice
            return GangShape(self.replicas, found.hosts, found.chips_per_host)
        return GangShape(1, self.replicas, self.device.chip_count())

    @staticmethod
    def with_tpu(
        tpu_type: str | Sequence[str],
        slice_count: int = 1,
        *,
        topology: str | None = None,
        chips_per_host: int | None = None,
        **resources: Any,
    ) -> ResourceConfig:
        """Return `slice_count` slices of a TPU type; the rest is as in `ResourceConfig`.

        Of a list of types, whose slices must have equal hosts, the first is taken, with a warning.

        Raises:
            UnknownAcceleratorError: There is no such slice; the error holds the nearest.
            AcceleratorShapeError: It doesn't come in that topology, or with that many chips per host.
            InvalidRequestError: A value means nothing.
        """
        _refuse("with_tpu", resources, device="tpu_type", replicas="slice_count", count="slice_count")
        if isinstance(tpu_type, list | tuple):
            tpu_type = _first_of(tpu_type)
        device = TpuConfig(tpu_type, topology=topology, chips_per_host=chips_per_host)  # type: ignore[arg-type]
        return ResourceConfig(device=device, count=slice_count, **resources)

    @staticmethod
    def with_gpu(gpu_type: str = ANY_GPU, count: int = 1, **resources: Any) -> ResourceConfig:
        """Return hosts with `count` GPUs of a type each; the rest is as in `ResourceConfig`.

        Raises:
            UnknownAcceleratorError: There is no such GPU; the error holds the nearest.
            AcceleratorShapeError: No machine has as many of it.
            InvalidRequestError: A value means nothing.
        """
        _refuse("with_gpu", resources, device="gpu_type")
        return ResourceConfig(device=GpuConfig(gpu_type, count), **resources)

    @staticmethod
    def with_cpu(**resources: Any) -> ResourceConfig:
        """Return hosts without an accelerator; the rest is as in `ResourceConfig`.

        Raises:
            InvalidRequestError: A value means nothing.
        """
        _refuse("with_cpu", resources, device="with_tpu or with_gpu")
        return ResourceConfig(**resources)


def warn_of_hosts(device: Any, replicas: Any, *, stacklevel: int) -> None:
    """Warn if a number of slices could be that of their hosts, which an earlier API counted."""
    hosts = device.slice.hosts if isinstance(device, TpuConfig) else 1
    if hosts > 1 and isinstance(replicas, int) and replicas > 0 and replicas % hosts == 0:
        meaning = f"replicas are slices of {hosts} hosts each, and were hosts in an earlier API"
        spelling = f"write ResourceConfig.with_tpu({device.type!r}, slice_count={replicas})"
        instead = f"slice_count={replicas // hosts} for {replicas} hosts in all"
        warnings.warn(f"{device.type}: {meaning}; {spelling}, or {instead}", stacklevel=stacklevel + 1)


def _refuse(function: str, given: dict[str, Any], **instead: str) -> None:
    for name, better in instead.items():
        if name in given:
            raise InvalidRequestError(
                f"ResourceConfig.{function}", f"takes no {name}", f"Use {better} for it."
            )


def _first_of(types: Sequence[str]) -> str:
    """Return the first of several TPU types, with a warning that the others aren't used."""
    if not types:
        remedy = "Name a slice type, such as 'v5p-8'."
        raise InvalidRequestError(
            "ResourceConfig.with_tpu", "has a list of types that must be non-empty", remedy
        )
    shapes = {name: TpuConfig(name).slice for name in types}
    if len({(found.hosts, found.chips_per_host) for found in shapes.values()}) > 1:
        listed = ", ".join(
            f"{name} has {found.hosts} of {found.chips_per_host} chips" for name, found in shapes.items()
        )
        remedy = f"Choose one, such as {types[0]!r}, or name types whose slices have equal hosts."
        raise InvalidRequestError("ResourceConfig.with_tpu", f"has types of unequal hosts: {listed}", remedy)
    if len(shapes) > 1:
        advice = f"of several TPU types the first is taken; write ResourceConfig.with_tpu({types[0]!r})"
        warnings.warn(advice, stacklevel=3)
    return types[0]


def _device(device: Any) -> DeviceConfig:
    if device is None:
        return CpuConfig()
    if not isinstance(device, CpuConfig | GpuConfig | TpuConfig):
        remedy = "Give a CpuConfig, GpuConfig or TpuConfig, or use ResourceConfig.with_tpu('v5p-8')."
        raise InvalidRequestError("ResourceConfig.device", f"is {show_value(device)}, no device", remedy)
    return device


def _regions(regions: Any) -> tuple[str, ...] | None:
    found = _places("regions", regions, example="us-central1")
    if found is not None and ANYWHERE in found and len(found) > 1:
        remedy = "Name regions, or give ['*'] alone for any."
        raise InvalidRequestError("ResourceConfig.regions", "has '*' beside others", remedy)
    return found


def _places(field: str, places: Any, *, example: str) -> tuple[str, ...] | None:
    if places is None:
        return None
    remedy = f"Give a list of names, such as [{example!r}], or None for any."
    found = check_texts(f"ResourceConfig.{field}", places, remedy=remedy)
    if not found:
        raise InvalidRequestError(f"ResourceConfig.{field}", "is empty, so the job could run nowhere", remedy)
    return found
