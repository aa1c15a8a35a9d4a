"""Variables that tell CUDA, libtpu and JAX which accelerators of a host a process may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fray.errors import InvalidOptionError

__all__ = ["check_devices", "device_variables"]

CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
"""Which GPUs, and in which order: numbers or UUIDs. Empty: none (CUDA C++ Programming Guide)."""
TPU_CHIPS = "TPU_VISIBLE_CHIPS"
"""Which TPU chips; libtpu then needs to know their shape, too (as Ray and JAX's documentation set it)."""
_TPU_SHAPES = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""Numbers of chips that a process may use of a host that has more -> their shape."""


def check_devices(offered: Mapping[str, float], environ: Mapping[str, str]) -> None:
    """Refuse to offer more devices than the variables of this process name: others may have the rest.

    Raises `InvalidOptionError`.
    """
    for resource, variable in (("GPU", CUDA_DEVICES), ("TPU", TPU_CHIPS)):
        own = environ.get(variable, "")
        if own and offered.get(resource, 0) > (named := len(own.split(","))):
            legal = f"at most {named}, since {variable} is {own!r} here"
            raise InvalidOptionError("resources", f"{resource}={offered[resource]:g}", legal)


def device_variables(
    devices: Mapping[str, Sequence[int]], offered: Mapping[str, float], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a process that holds devices of its host, by their places among the host's.

    Parameters: the `devices` by resource ("GPU" and "TPU"); what the host has `offered`; `environ`, the
    host's own variables, which may name its devices.

    A process that holds no GPU sees none where the host offers some, and one without any accelerator runs JAX
    on the CPU: a TPU belongs to the first process that opens it.
    """
    variables = {}
    if "GPU" in offered:
        variables[CUDA_DEVICES] = _named(devices.get("GPU", ()), environ.get(CUDA_DEVICES, ""))
    if (chips := devices.get("TPU", ())) and len(chips) < offered["TPU"]:
        variables[TPU_CHIPS] = _named(chips, environ.get(TPU_CHIPS, ""))
        if shape := _TPU_SHAPES.get(len(chips)):
            variables |= {"TPU_CHIPS_PER_HOST_BOUNDS": shape, "TPU_HOST_BOUNDS": "1,1,1"}
    if not devices and not environ.get("JAX_PLATFORMS"):
        variables["JAX_PLATFORMS"] = "cpu"
    return variables


def _named(places: Sequence[int], own: str) -> str:
    names = own.split(",") if own else []
    return ",".join(names[place] if place < len(names) else str(place) for place in places)
