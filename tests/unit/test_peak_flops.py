"""Figures for shares of the peak, by the names that programs and JAX have for chips."""

from __future__ import annotations

import pytest

import fray.cluster.device_flops
import fray.device_flops
from fray.accelerators.peak_flops import lookup_peak_flops, read_jax_device_kind
from fray.device_flops import device_flops, device_flops_for_jax_device, jax_device_kind_to_fray_device_type


@pytest.mark.parametrize(
    ("device", "dtype", "flops"),
    [
        ("h100", "bf16", 0.9895e15),
        ("H100", "amp_bf16", 0.9895e15),
        ("h100-pcie", "bf16", 0.7565e15),
        ("A100-80G", "fp16", 312e12),
        ("A100-80GB", "bf16", 312e12),
        ("nvidia-h100-80gb", "bf16", 0.9895e15),
        ("nvidia-tesla-v100", "fp16", 112e12),
        ("v3-8", "bf16", 123e12),
        ("v4-128", "bf16", 275e12),
        ("v5litepod-16", "bfloat16", 197e12),
        ("v5e-16", "bf16", 197e12),
        ("v5p-8", "bf16", 459e12),
        ("v6e-8", "bf16", 918e12),
        ("tpu7x-2x2x1", "bf16", 2.31e15),
        ("nvidia-gb300", "bf16", 2.5e15),
        ("t4", "bf16", None),
        ("t4", "float16", 65e12),
        ("V100-SXM", "fp16", 125e12),
        ("h100", "fp8", None),
        ("abacus", "bf16", None),
        ("", "", None),
    ],
)
def test_types(device: str, dtype: str, flops: float | None) -> None:
    assert lookup_peak_flops(device, dtype) == flops
    if flops is None:
        with pytest.warns(UserWarning, match="aren't known"):
            assert device_flops(device, dtype) is None
    else:
        assert device_flops(device, dtype) == flops


@pytest.mark.parametrize(
    ("kind", "device"),
    [
        ("TPU v3", "v3"),
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5litepod"),
        ("TPU v5e", "v5litepod"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU v6e", "v6e"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100 80GB PCIe", "a100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GB10", "gb10"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm"),
    ],
)
def test_what_jax_calls_them(kind: str, device: str) -> None:
    assert read_jax_device_kind(kind) == device
    assert jax_device_kind_to_fray_device_type(kind) == device
    chip = lookup_peak_flops(device, "fp16")
    assert chip is not None
    # JAX shows the two cores of a v3 chip as two devices.
    assert device_flops_for_jax_device(kind, "fp16") == (chip / 2 if device == "v3" else chip)


@pytest.mark.parametrize(
    "kind", ["cpu", "NVIDIA GeForce RTX 4090", "TPU v4 lite", "TPU7x", "", "NVIDIA L400"]
)
def test_what_is_not_known(kind: str) -> None:
    assert read_jax_device_kind(kind) is None
    assert jax_device_kind_to_fray_device_type(kind) == kind.lower()
    with pytest.warns(UserWarning, match="aren't known"):
        assert device_flops_for_jax_device(kind) is None


def test_where_it_was() -> None:
    assert fray.cluster.device_flops.device_flops is fray.device_flops.device_flops
