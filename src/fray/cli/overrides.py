"""What the command line says instead of a job's file: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fray.cli.named_job import JobOptions, read_timeout, read_variables
from fray.errors import InvalidRequestError
from fray.plan.expansion import escape_text
from fray.types.environment import is_confidential
from fray.wire.frayjob import FrayJob
from fray.wire.pod import EnvVar
from fray.wire.validation import validate_manifest

__all__ = ["override_job"]


def override_job(
    job: FrayJob, options: JobOptions, *, environ: Mapping[str, str], is_local: bool
) -> tuple[FrayJob, tuple[str, ...]]:
    """Return the job of a file with what options say in its place, and each change in words.

    Raises:
        InvalidRequestError: An option means nothing.
        InvalidJobError: The API server would refuse the job so.
    """
    spec, changes = job.spec, list[str]()
    parts: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    if options.retries is not None:
        parts["retries"] = spec.retries.model_copy(update={"failures": options.retries})
        changes.append(f"retries.failures {options.retries}")
    if options.replicas is not None:
        parts["replicas"] = options.replicas
        changes.append(f"replicas {options.replicas}")
    if options.timeout is not None:
        read_timeout(options.timeout)
        parts["timeouts"] = spec.timeouts.model_copy(update={"total": options.timeout})
        changes.append(f"timeouts.total {options.timeout}")
    if options.image is not None:
        environment["image"] = options.image
        changes.append(f"image {options.image}")
    if options.env:
        variables = read_variables(options.env, environ)
        hidden = [name for name, value in variables.items() if is_confidential(name, value)]
        if hidden and not is_local:
            remedy = "Put it into a Secret, and name that in environment.envFrom of the file."
            raise InvalidRequestError("--env", f"gives {hidden[0]}, which all could read there", remedy)
        given = {name: EnvVar(name=name, value=escape_text(value)) for name, value in variables.items()}
        kept = [each for each in spec.environment.env if each.name not in given]
        environment["env"] = [*kept, *given.values()]
        changes.append(f"env {', '.join(given)}")
    if not changes:
        return job, ()
    if environment:
        parts["environment"] = spec.environment.model_copy(update=environment)
    changed = job.model_copy(update={"spec": spec.model_copy(update=parts)})
    judged = validate_manifest(changed.to_manifest())
    return judged.model_copy(update={"status": job.status}), tuple(changes)
