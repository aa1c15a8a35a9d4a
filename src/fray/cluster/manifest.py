"""From a JobRequest to the FrayJob that asks a cluster for the same: pure, for all backends alike.

What has to exist beside it, the pickled callable, the archive of the workspace, the Secret with
confidential variables, is passed in or handed out as data; writing and reading clusters is elsewhere.
How a FrayJob becomes a JobInfo again is `fray.cluster.progress`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec, LocalSpec, RaySpec, check_available
from fray.credentials import holds_credentials
from fray.errors import InvalidRequestError, UnsupportedFeatureError
from fray.plan.expansion import escape_text
from fray.plan.names import build_object_name
from fray.types import EnvironmentConfig, GpuConfig, JobRequest, ResourceConfig, TpuConfig
from fray.types.environment import is_confidential
from fray.types.request import CompleteRequest
from fray.types.resources import ANYWHERE
from fray.types.sizes import format_cores, format_size, parse_cores, parse_size
from fray.vocabulary import (
    ANNOTATION_LAUNCH,
    ANNOTATION_ORIGINAL_NAME,
    ENV_CLIENT_SPEC,
    ENV_CLUSTER_SPEC,
    ENV_JAX_PLATFORMS,
    ENV_JOB_NAME,
    ENV_ROOT_JOB,
)
from fray.wire.frayjob import (
    CallableEntrypoint,
    Entrypoint,
    Environment,
    FrayJob,
    FrayJobSpec,
    ObjectMeta,
    Parent,
    Placement,
    Queue,
    Retries,
    Timeouts,
    Workspace,
)
from fray.wire.model import OBJECT_NAME_PATTERN, build_unjudged
from fray.wire.pod import EnvFromSource, EnvVar, Gpu, LocalReference, Resources, Tpu

__all__ = [
    "LAUNCH_DIGITS",
    "JobManifest",
    "Uploads",
    "build_manifest",
    "find_parent",
    "mark_launch",
    "rename_job",
]

LAUNCH_DIGITS: Final = 10
"""Of a launch's word, in names of Secrets."""

JAX_PLATFORMS: Final[Mapping[str, str]] = {"cpu": "cpu", "gpu": ""}
"""JAX's platform by the kind of device, where a request sets none; for TPUs the plan does it."""


MOST_OF_A_VARIABLE: Final = 131_072
"""Bytes: Linux's MAX_ARG_STRLEN, and the CRD's limit for those that stand in the FrayJob."""
MOST_OF_A_SECRET: Final = 1_000_000
"""Bytes: the API server takes a MiB, with the keys.
https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size"""


@dataclass(frozen=True, kw_only=True)
class Uploads:
    """What was, or will be, put where the job's pods find it.

    Attributes:
        payload: The pickled callable of the request; None for a program.
        workspace: The archive of the request's workspace; None where the image has the code.
    """

    payload: CallableEntrypoint | None = None
    workspace: Workspace | None = None


@dataclass(frozen=True, kw_only=True)
class JobManifest:
    """A FrayJob, and the confidential variables that it refers to and doesn't hold.

    Attributes:
        job: The FrayJob, legal for the API server.
        secret_name: The Secret that must hold `secret_variables`, owned by the FrayJob.
        secret_variables: Its keys and values, which are the names and values of variables; may be empty.
    """

    job: FrayJob
    secret_name: str
    secret_variables: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The FrayJob's name."""
        return self.job.metadata.name

    @property
    def manifest(self) -> dict[str, Any]:
        """The FrayJob as JSON data."""
        return self.job.to_manifest()


def find_parent(variables: Mapping[str, str]) -> Parent | None:
    """Return the job that a process of these variables belongs to, or None outside of any job."""
    name = variables.get(ENV_JOB_NAME)
    if not name:
        return None
    return Parent(name=name, root=variables.get(ENV_ROOT_JOB) or name)


def build_manifest(
    request: CompleteRequest,
    cluster: ClusterSpec,
    *,
    name: str | None = None,
    parent: Parent | None = None,
    uploads: Uploads = Uploads(),
    launch: str | None = None,
) -> JobManifest:
    """Return the FrayJob that a request means on a cluster.

    Args:
        request: What is asked for, as `JobRequest.with_environment` returns it.
        cluster: Where it will run: gives namespace, image, queue and service account where the request
            doesn't, and is what the job's own processes find in FRAY_CLUSTER_SPEC.
        name: What to call it instead of `request.name`, which is kept in an annotation: the way to give
            two jobs of one name different objects. It need not be legal, as `request.name`.
        parent: The job that launches it.
        uploads: Where its callable and its workspace are.
        launch: A word of this launch alone, hexadecimal: it is kept in an annotation, and in the name of the
            Secret, which would else be that of another launch of the same name.

    Raises:
        InvalidRequestError: The request isn't complete, its callable has no payload, an upload's URL has
            credentials, or the like.
        ClusterUnavailableError: The cluster is of a kind that this version can't use.
        UnsupportedFeatureError: It asks for what no FrayJob can say.
        InvalidJobError: A name or a value is one that the API server refuses.
    """
    check_available(cluster)
    _check_whole(request, uploads)
    object_name = build_object_name(request.name if name is None else name)
    environment = request.environment
    secret_name = f"{object_name}-env" if launch is None else f"{object_name}-env-{launch[:LAUNCH_DIGITS]}"
    resources = request.gang_resources
    own_variables = environment.env_vars
    confidential = {name: value for name, value in own_variables.items() if is_confidential(name, value)}
    _check_secrets(environment, confidential)
    variables = {**_default_variables(resources, cluster), **own_variables}
    spec = build_unjudged(
        FrayJobSpec,
        entrypoint=_entrypoint(request, uploads.payload),
        replicas=resources.replicas,
        resources=_resources(resources, cluster),
        placement=_placement(resources),
        environment=build_unjudged(
            Environment,
            image=environment.docker_image or resources.image or getattr(cluster, "image", None),
            env=[_variable(each, value, secret_name, confidential) for each, value in variables.items()],
            env_from=[_all_of_secret(each) for each in environment.secrets],
            pip_packages=list(environment.pip_packages),
            extras=list(environment.extras),
            workspace=uploads.workspace,
            setup=list(environment.setup),
            cache_volume=environment.cache_volume or None,
        ),
        service_account_name=request.service_account or getattr(cluster, "service_account", None),
        retries=build_unjudged(
            Retries, failures=request.max_retries_failure, preemptions=request.max_retries_preemption
        ),
        timeouts=build_unjudged(Timeouts, total_seconds=request.timeout_seconds),
        parent=parent,
        queue=_queue(request, cluster),
    )
    annotations = {ANNOTATION_ORIGINAL_NAME: request.name} if object_name != request.name else {}
    if launch is not None:
        annotations[ANNOTATION_LAUNCH] = launch
    job = build_unjudged(
        FrayJob,
        api_version="fray.dev/v1alpha1",
        kind="FrayJob",
        metadata=build_unjudged(
            ObjectMeta,
            name=object_name,
            namespace=cluster.namespace if isinstance(cluster, KubernetesSpec) else None,
            annotations=annotations,
        ),
        spec=spec,
    )
    from fray.wire.validation import check_job  # noqa: PLC0415 - its rules, which only launches need

    check_job(job)
    return JobManifest(job=job, secret_name=secret_name, secret_variables=confidential)


def rename_job(job: FrayJob, name: str) -> FrayJob:
    """Return a job under the name that was found for it; an annotation keeps what its author calls it."""
    if name == job.metadata.name:
        return job
    annotations = {ANNOTATION_ORIGINAL_NAME: job.metadata.name, **job.metadata.annotations}
    metadata = job.metadata.model_copy(update={"name": name, "annotations": annotations})
    return job.model_copy(update={"metadata": metadata})


def mark_launch(job: FrayJob, word: str) -> FrayJob:
    """Return a job with a word of this launch alone, by which what comes of it is known."""
    annotations = {**job.metadata.annotations, ANNOTATION_LAUNCH: word}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"annotations": annotations})})


def _check_whole(request: JobRequest, uploads: Uploads) -> None:
    if not isinstance(request, CompleteRequest):
        remedy = "Pass request.with_environment(), which has the documented defaults."
        raise InvalidRequestError("JobRequest.environment", "isn't filled in", remedy)
    for name, part in (("payload", uploads.payload), ("workspace", uploads.workspace)):
        if part is not None and part.url is not None and holds_credentials(part.url):
            remedy = "Take it out: all who may read the FrayJob would see it. Pods use their service account."
            raise InvalidRequestError(f"Uploads.{name}.url", "holds a password or a token", remedy)


def _check_secrets(environment: EnvironmentConfig, confidential: Mapping[str, str]) -> None:
    """Check what is secret, or in Secrets, which the FrayJob's own rules can't."""
    for index, name in enumerate(environment.secrets):
        if not re.fullmatch(OBJECT_NAME_PATTERN, name, re.ASCII):
            remedy = "Names of Secrets are lower case letters, digits, '-' and '.', such as 'wandb'."
            raise InvalidRequestError(f"EnvironmentConfig.secrets[{index}]", f"is {name!r}", remedy)
    for index, package in enumerate(environment.pip_packages):
        if holds_credentials(package):
            remedy = "Name a variable in its place, as ${GIT_TOKEN}, and give that in env_vars or secrets."
            where = f"EnvironmentConfig.pip_packages[{index}]"
            raise InvalidRequestError(
                where, "holds a password or a token, which the FrayJob would show", remedy
            )
    remedy = "Put it into a file: a Secret takes 1 MB in all, and a process 128 KiB in one variable."
    for name, value in confidential.items():
        if len(value.encode()) > MOST_OF_A_VARIABLE:
            where = f"EnvironmentConfig.env_vars[{name!r}]"
            raise InvalidRequestError(where, f"takes {len(value.encode()):,} bytes", remedy)
    size = sum(len(name) + len(value.encode()) for name, value in confidential.items())
    if size > MOST_OF_A_SECRET:
        problem = f"has confidential values of {size:,} bytes in all"
        raise InvalidRequestError("EnvironmentConfig.env_vars", problem, remedy)


def _entrypoint(request: JobRequest, payload: CallableEntrypoint | None) -> Entrypoint:
    entrypoint = request.resolve_entrypoint()
    if entrypoint.binary_entrypoint is not None:
        # The kubelet would read $(NAME) and $$; a program gets its arguments as they were given.
        command = [escape_text(argument) for argument in entrypoint.binary_entrypoint.argv]
        return Entrypoint.model_construct(command=command)
    if payload is None:
        remedy = "Encode it first, and pass its Secret, digest and Python version in Uploads(payload=...)."
        raise InvalidRequestError("JobRequest.entrypoint", "is a callable without a payload", remedy)
    return build_unjudged(Entrypoint, callable=payload)


def _resources(resources: ResourceConfig, cluster: ClusterSpec) -> Resources:
    device = resources.device
    tpu, gpu = None, None
    if isinstance(device, TpuConfig):
        tpu = build_unjudged(
            Tpu, type=device.type, topology=device.topology, chips_per_host=device.chips_per_host
        )
    elif isinstance(device, GpuConfig):
        if device.gke_type is not None:
            gpu = build_unjudged(Gpu, type=device.gke_type, count=device.count)
        elif not isinstance(cluster, LocalSpec):
            reason = "nodes are chosen by the type of their GPUs"
            alternative = "Name one: ResourceConfig.with_gpu('L4'), or 'nvidia-h100-80gb'."
            raise UnsupportedFeatureError("GPU type 'auto'", reason, alternative)
    return build_unjudged(
        Resources,
        cpu=format_cores(parse_cores("ResourceConfig.cpu", resources.cpu)),
        memory=format_size(parse_size("ResourceConfig.ram", resources.ram)),
        disk=format_size(parse_size("ResourceConfig.disk", resources.disk)),
        tpu=tpu,
        gpu=gpu,
    )


def _placement(resources: ResourceConfig) -> Placement:
    placement = build_unjudged(
        Placement,
        preemptible=resources.preemptible,
        regions=[region for region in resources.regions or () if region != ANYWHERE],
        zones=list(resources.zones or ()),
    )
    return placement.model_copy(update={"spot": "Required"}) if resources.spot else placement


def _variable(name: str, value: str, secret_name: str, confidential: Mapping[str, str]) -> EnvVar:
    if name in confidential:
        reference = {"secretKeyRef": {"name": secret_name, "key": name}}
        return build_unjudged(EnvVar, name=name, value_from=reference)
    return build_unjudged(EnvVar, name=name, value=escape_text(value))


def _all_of_secret(name: str) -> EnvFromSource:
    return build_unjudged(EnvFromSource, secret_ref=build_unjudged(LocalReference, name=name))


def _default_variables(resources: ResourceConfig, cluster: ClusterSpec) -> dict[str, str]:
    # Inside a pod there is no kubeconfig: a job's own jobs are launched with its account.
    # On Ray the way in is another one than from outside, and Ray itself tells it, in RAY_ADDRESS.
    within = replace(cluster, context=None) if isinstance(cluster, KubernetesSpec) else cluster
    within = RaySpec() if isinstance(cluster, RaySpec) else within
    variables = {ENV_CLUSTER_SPEC: str(within), ENV_CLIENT_SPEC: str(within)}
    platform = JAX_PLATFORMS.get(resources.device.kind)
    return variables if platform is None else {**variables, ENV_JAX_PLATFORMS: platform}


def _queue(request: JobRequest, cluster: ClusterSpec) -> Queue | None:
    name = request.queue or getattr(cluster, "queue", None)
    if name is not None:
        return build_unjudged(Queue, name=name, priority_class=request.priority_class)
    if request.priority_class is not None:
        remedy = "Set JobRequest.queue, or queue= in the cluster spec: Kueue reads priority classes."
        raise InvalidRequestError("JobRequest.priority_class", "is set without a queue", remedy)
    return None
