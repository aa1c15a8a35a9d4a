"""The program of a Ray job that ends another one while Ray holds it back, waiting for room."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["main"]


def main() -> None:
    """End the job that the command line names; one that has gone doesn't mind.

    Ray's job API has no call for it. A job that waits is an actor that isn't placed yet, by these names.
    """
    import ray  # noqa: PLC0415 - an extra
    from ray.dashboard.modules.job.common import (  # noqa: PLC0415 - see above
        JOB_ACTOR_NAME_TEMPLATE,
        SUPERVISOR_ACTOR_RAY_NAMESPACE,
    )

    ray.init(log_to_driver=False)
    with contextlib.suppress(ValueError):  # no such actor
        name = JOB_ACTOR_NAME_TEMPLATE.format(job_id=sys.argv[1])
        ray.kill(ray.get_actor(name, namespace=SUPERVISOR_ACTOR_RAY_NAMESPACE))


if __name__ == "__main__":
    main()
