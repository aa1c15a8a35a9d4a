"""What is Ray's alone: a Ray that the process has already."""

from __future__ import annotations

import subprocess
import sys

JOINS = """
import sys
import ray
from fray.job import create_job_ctx

ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
with create_job_ctx("auto") as ctx:
    assert "ray" in repr(ctx)
    assert ctx.run(len, "abc").result(120) == 3
assert ray.get(ray.put(1)) == 1
print("joined")
"""


def test_auto_takes_the_ray_that_the_process_has(made_ray: str) -> None:
    """It stays when the context ends."""
    command = [sys.executable, "-c", JOINS, made_ray]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert ran.stdout == "joined\n", ran.stderr
