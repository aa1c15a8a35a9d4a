"""How fast accelerators are at most: dense FLOP/s of one chip by type, for shares of the peak (MFU).

The figures that programs of earlier APIs compare themselves with, from data sheets. Those of GB200 and GB300
are a 72nd of NVIDIA's for NVL72; those of tpu7 and tpu7x are JAX's (`pallas/mosaic/tpu_info.py`). That of v3
is Google's for a chip (https://cloud.google.com/tpu/docs/v3); earlier APIs had half of it, a TensorCore. GPUs
that GKE doesn't have are here as well, since programs measure themselves on any machine. A device of JAX's on
v3 and tpu7x is half a chip; on tpu7x its name stands for no type here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["list_peak_flops", "lookup_jax_flops", "lookup_peak_flops", "read_jax_device_kind"]

_BF16: Final[Mapping[str, float]] = MappingProxyType(
    {
        "a10": 125e12,
        "a100": 312e12,
        "a100-40g": 312e12,
        "a100-80g": 312e12,
        "a10g": 125e12,
        "a40": 149.7e12,
        "a6000": 154.85e12,
        "auto": 0.9895e15,
        "b100": 0.9895e15,
        "b200": 2.5e15,
        "gb10": 100e12,
        "gb200": 2.5e15,
        "gb300": 2.5e15,
        "h100": 0.9895e15,
        "h100-pcie": 0.7565e15,
        "h200": 0.9895e15,
        "l4": 242e12,
        "l40s": 366.5e12,
        "tpu7": 2.31e15,
        "tpu7x": 2.31e15,
        "trn1": 95e12,
        "v3": 123e12,
        "v4": 275e12,
        "v5": 459e12,
        "v5e": 197e12,
        "v5litepod": 197e12,
        "v5p": 459e12,
        "v6e": 918e12,
    }
)
_FP16_ONLY: Final[Mapping[str, float]] = MappingProxyType(
    {"t4": 65e12, "v100": 112e12, "v100-sxm": 125e12, "v100s": 130e12}
)
"""GPUs of before bfloat16."""
_SPELLINGS: Final = MappingProxyType({"bfloat16": "bf16", "float16": "fp16", "half": "fp16"})

_TPU_KIND: Final = re.compile(r"tpu (?P<generation>v\d+)(?P<suffix>[ep]| lite)?", re.IGNORECASE)
_LITE: Final = MappingProxyType({"v5": "v5litepod", "v6": "v6e"})
_GPU_KIND: Final = re.compile(
    r"\b(?P<model>GB10|GB[23]00|B[12]00|H[12]00|A100|A10G?|A40|A6000|L40S|L4|V100S?|T4)(?![0-9A-Za-z])(?P<rest>.*)",
    re.IGNORECASE,
)
_GIGABYTES: Final = re.compile(r"\b(40|80)GB?\b", re.IGNORECASE)


def list_peak_flops() -> dict[str, dict[str, float]]:
    """Return the dense FLOP/s of one chip of each type, by what `lookup_peak_flops` takes for `dtype`."""
    both = {device: {"bf16": flops, "fp16": flops} for device, flops in _BF16.items()}
    return both | {device: {"fp16": flops} for device, flops in _FP16_ONLY.items()}


def lookup_peak_flops(device: str, dtype: str = "bf16") -> float | None:
    """Return the dense FLOP/s of one chip at most; None where they aren't known.

    Args:
        device: A type in any case: `h100`, `A100-80GB`, `nvidia-l4`, `v5p`; of a TPU slice (`v4-128`) one
            chip counts.
        dtype: `bf16` or `fp16`, or JAX's and PyTorch's names of them; `amp_` before it changes nothing.
    """
    wanted = dtype.lower().removeprefix("amp_")
    wanted = _SPELLINGS.get(wanted, wanted)
    # Every chip that has both does them at the same rate.
    tables = {"bf16": (_BF16,), "fp16": (_BF16, _FP16_ONLY)}.get(wanted, ())
    name = device.lower().removeprefix("nvidia-").removeprefix("tesla-")
    names = (name, name.partition("-")[0])
    return next((table[each] for each in names for table in tables if each in table), None)


def lookup_jax_flops(kind: str, dtype: str = "bf16") -> float | None:
    """Return the dense FLOP/s of one device of JAX's, by its `device_kind`; None where they aren't known."""
    device = read_jax_device_kind(kind)
    chip = None if device is None else lookup_peak_flops(device, dtype)
    return chip / 2 if chip is not None and device == "v3" else chip


def read_jax_device_kind(kind: str) -> str | None:
    """Return the type of a JAX `device_kind`, such as `TPU v5 lite`; None for one that isn't known."""
    tpu = _TPU_KIND.fullmatch(kind.strip())
    if tpu is not None:
        generation, suffix = tpu["generation"].lower(), (tpu["suffix"] or "").strip().lower()
        if suffix == "lite":
            return _LITE.get(generation)
        if (generation, suffix) == ("v5", ""):
            return "v5p"  # JAX calls the large one of that generation so
        return "v5litepod" if (generation, suffix) == ("v5", "e") else generation + suffix
    gpu = _GPU_KIND.search(kind)
    if gpu is None:
        return None
    model, rest = gpu["model"].lower(), gpu["rest"].lower()
    if model == "a100" and (size := _GIGABYTES.search(rest)) is not None:
        return f"a100-{size[1]}g"
    if model == "h100" and "pcie" in rest:
        return "h100-pcie"
    return "v100-sxm" if model == "v100" and "sxm" in rest else model
