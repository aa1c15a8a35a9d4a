"""Runs what needs an NVIDIA GPU: `make gpu`. Standard library only; each part is a job of `fray run -f`.

    digits   the example trains on the GPU
    shared   two ranks compute on one GPU
    pool     tasks of a pool see the GPU that they hold, and others none
    tasks    tasks of a pool compute on the GPU one after the other, others on the CPU
    torch    a `torchrun` gang of one adds numbers up by NCCL

Exit codes: 0 all parts ended well, 1 a part failed, 3 there is no GPU that can be used (make itself then ends
with 2). FRAY_GPU_PYTHON names a Python that has Fray, JAX and PyTorch for CUDA already, as images for
machine learning do: nothing is installed then. `tools/gpu.py PART` is what the processes of a part run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".gpu"
"""An environment of its own: the wheels for CUDA take gigabytes, and the lock file has none."""
EXIT_FAILURE, EXIT_NO_GPU = 1, 3
NO_GPU = """\
make gpu: there is no NVIDIA GPU here that can be used: {why}
Run it on a machine with one, with NVIDIA's driver installed (`nvidia-smi` must list the GPU). It needs {size}
for the packages, which it installs into .gpu/, and about 2 GB of the GPU's memory.
"""
ON_GPU = {"JAX_PLATFORMS": "cuda"}
# Each process of JAX reserves 75 % of a GPU's memory when it starts, so that a second one finds too little:
# https://docs.jax.dev/en/latest/gpu_memory_allocation.html
SHARED = {**ON_GPU, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def main() -> int:
    """Run all parts, and print what was measured as JSON; or one part's program."""
    if len(sys.argv) > 1:
        PROGRAMS[sys.argv[1]]()
        return 0
    gpu, why = find_gpu()
    if gpu is None:
        sys.stderr.write(NO_GPU.format(why=why, size="10 GB of disk"))
        return EXIT_NO_GPU
    print(f"GPU: {gpu}", flush=True)
    python = os.environ.get("FRAY_GPU_PYTHON") or install()
    own = [python, str(Path(__file__).resolve())]
    digits = [python, str(ROOT / "examples/digits/train.py")]
    torch = [python, "-m", "torch.distributed.run", own[1], "torch"]
    seconds: dict[str, float | None] = {
        "digits": run_job(python, "digits", digits, ON_GPU),
        "shared": run_job(python, "shared", [*own, "shared"], SHARED, replicas=2),
        "pool": run_job(python, "pool", [*own, "pool"], {}),
        "tasks": run_job(python, "tasks", [*own, "tasks"], {}),
        "torch": run_job(python, "torch", torch, {}),
    }
    print(json.dumps({"gpu": gpu, "seconds": seconds}))
    return EXIT_FAILURE if None in seconds.values() else 0


def find_gpu() -> tuple[str | None, str]:
    """Return name, memory and driver of the first GPU, or why there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return None, "nvidia-smi isn't installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvidia-smi can't be run: {error}"
    lines = found.stdout.strip().splitlines()
    if found.returncode or not lines:
        return None, f"nvidia-smi says: {(found.stdout + found.stderr).strip() or 'nothing'}"
    return lines[0], ""


def install() -> str:
    """Put Fray, JAX and PyTorch for CUDA, and what the example needs, into `.gpu`; return its Python."""
    uv = str(ROOT / ".tools/bin/uv")
    jax = f"jax[cuda12]=={importlib.metadata.version('jax')}"
    packages = ["-e", str(ROOT), jax, "torch", "scikit-learn", "matplotlib", "plotext"]
    subprocess.run([uv, "venv", "--allow-existing", "--python", sys.executable, str(FOLDER)], check=True)
    python = str(FOLDER / "bin/python")
    subprocess.run([uv, "pip", "install", "--python", python, *packages], check=True)
    return python


def build_job(name: str, command: list[str], variables: dict[str, str], replicas: int) -> dict[str, Any]:
    """Return the FrayJob of a part; which GPU it names means nothing on this machine."""
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": f"gpu-{name}"},
        "spec": {
            "entrypoint": {"command": command},
            "replicas": replicas,
            "resources": {"gpu": {"type": "nvidia-l4", "count": 1}},
            "environment": {"env": [{"name": key, "value": value} for key, value in variables.items()]},
        },
    }


def run_job(
    python: str, name: str, command: list[str], variables: dict[str, str], replicas: int = 1
) -> float | None:
    """Run a part by the Fray of that Python, and return its seconds; None if it failed."""
    print(f"--- {name}: {' '.join(f'{key}={value}' for key, value in variables.items())}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as state:
        fray = [python, "-m", "fray.cli", "run", "--cluster", "local", "-f", "-"]
        job = json.dumps(build_job(name, command, variables, replicas))
        environ = {**os.environ, "FRAY_STATE_DIR": state}
        code = subprocess.run(fray, input=job, text=True, env=environ, check=False).returncode
    print(f"--- {name}: {'ended well' if code == 0 else f'failed with exit code {code}'}", flush=True)
    return round(time.monotonic() - began, 1) if code == 0 else None


# --- what the processes of a part run


def compute() -> None:
    """Multiply matrices on the GPU, which another rank uses as well. NCCL refuses two ranks on one GPU."""
    import jax  # noqa: PLC0415 - only there

    from fray import current_identity  # noqa: PLC0415

    size = 4096
    ones = jax.numpy.ones((size, size))
    total = float((ones @ ones).sum())
    assert total == float(size) ** 3, total
    print(f"rank {current_identity().rank}: {jax.devices()[0].device_kind}, sum {total:.0f}")


def hold_gpu() -> None:
    """Ask a pool's processes for the GPUs that they see, with one and with none."""
    from fray.job import TaskOptions, create_job_ctx  # noqa: PLC0415 - only there

    def see() -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    with create_job_ctx("pool", resources={"gpu": 1}) as ctx:
        holding = ctx.run(see, options=TaskOptions(resources={"gpu": 1}))
        seen = ctx.get([holding, ctx.run(see)])
    own = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    assert seen == [own.partition(",")[0], ""], seen
    print(f"a task that holds the GPU sees {seen[0]!r}, another one {seen[1]!r}")


def compute_in_tasks() -> None:
    """Multiply matrices in tasks that hold the GPU, and in one that holds none."""
    from fray.job import TaskOptions, create_job_ctx  # noqa: PLC0415 - only there

    def multiply() -> tuple[str, float]:
        import jax  # noqa: PLC0415 - the worker's, which has its devices by then

        ones = jax.numpy.ones((1024, 1024))
        return jax.devices()[0].platform, float((ones @ ones).sum())

    with create_job_ctx("pool", resources={"gpu": 1}) as ctx:
        holding = [ctx.run(multiply, options=TaskOptions(resources={"gpu": 1})) for _ in range(4)]
        seen = ctx.get([*holding, ctx.run(multiply)])
    assert seen == [*[("gpu", 1024.0**3)] * 4, ("cpu", 1024.0**3)], seen
    print("four tasks computed on the GPU that they held, and one without on the CPU")


def add_up() -> None:
    """Add numbers up over a gang of one, by NCCL."""
    import torch  # noqa: PLC0415 - only there

    torch.distributed.init_process_group("nccl")
    numbers = torch.arange(8.0, device="cuda")
    torch.distributed.all_reduce(numbers)
    assert numbers.sum().item() == 28 * torch.distributed.get_world_size()
    print(f"NCCL {torch.cuda.nccl.version()} on {torch.cuda.get_device_name()}: sum {numbers.sum().item()}")
    torch.distributed.destroy_process_group()


PROGRAMS = {"shared": compute, "pool": hold_gpu, "tasks": compute_in_tasks, "torch": add_up}


if __name__ == "__main__":
    sys.exit(main())
