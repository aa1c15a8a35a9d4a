"""Launch the digits example from Python, where FRAY_CLUSTER_SPEC says: this machine, or a cluster.

    python examples/digits/launch.py --epochs 5

It asks for what frayjob.yaml asks for. Options other than --image are those of `train.py`. Neither JAX nor
any other package of the training is needed here on a laptop that launches on a cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from fray import Entrypoint, JobRequest, ResourceConfig, create_environment, current_cluster

# isort: split
from options import parse_options


def main() -> None:
    """Launch the job, show what it prints, and tell what it returned."""
    parser = argparse.ArgumentParser(description="Launch the digits example.", allow_abbrev=False)
    parser.add_argument("--image", default="fray-digits:0.1.0", help="of pods; built by `make images`")
    chosen, arguments = parser.parse_known_args()
    parse_options(arguments)  # what is wrong is told here rather than by each host

    request = JobRequest(
        name="digits",
        entrypoint=Entrypoint.from_callable(build_training(arguments)),
        # Two slices of two hosts each. On a laptop: four processes.
        resources=ResourceConfig.with_tpu("v5p-16", 2, cpu=1, ram="1g", disk="1g", image=chosen.image),
        # The folder travels with the job, so that `import train` finds it there. JAX_PLATFORMS keeps JAX off
        # the chips, as in frayjob.yaml.
        environment=create_environment(workspace=Path(__file__).parent, env_vars={"JAX_PLATFORMS": "cpu"}),
        max_retries_failure=1,
    )
    cluster = current_cluster()
    job = cluster.launch(request)
    for line in cluster.logs(job, follow=True):
        print(line, flush=True)
    cluster.wait(job, raise_on_failure=True)
    outcome = cluster.outcome(job)
    assert outcome is not None
    print(f"{job} returned accuracy {outcome.result():.2f}")


def build_training(arguments: Sequence[str]) -> Callable[[], float]:
    """Return what each host does: a closure, which travels with what it holds."""

    def train_here() -> float:
        import train  # noqa: PLC0415 - on the host, in the folder that travelled with the job

        return train.train(parse_options(arguments))

    return train_here


if __name__ == "__main__":
    main()
