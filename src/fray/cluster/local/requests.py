"""What a JobRequest or a FrayJob means on this machine: its payload, and what its processes find.

Nothing is written and nothing is started here, so that all that can be refused is refused first.
"""

from __future__ import annotations

import importlib.metadata
import re
import resource
import shutil
import socket
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fray import types
from fray.cluster.arguments import find_workspace
from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.local.attempt import PLAN_SETTINGS, InProcessCall, Workplace
from fray.cluster.local.claims import KEPT_SECONDS
from fray.cluster.local.environment import IsolatedEnv, derive_base_environment, find_uv
from fray.cluster.local.pods import LocalMachine, build_local_pods
from fray.cluster.local.store import JobFolder
from fray.cluster.local.support import build_notices, check_open_files, check_supported
from fray.cluster.manifest import JobManifest, Uploads, build_manifest, rename_job
from fray.errors import UnsupportedFeatureError
from fray.payload.callables import Payload, PayloadLimits, check_call, encode_callable
from fray.payload.stamp import PYTHON
from fray.plan.gang import GangKind
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.settings import Settings
from fray.types import EnvironmentConfig, JobRequest
from fray.wire.frayjob import CallableEntrypoint, FrayJob, Parent

__all__ = [
    "LocalRequest",
    "describe_payload",
    "is_installed",
    "prepare_job",
    "prepare_request",
    "with_this_python",
    "without_secrets",
]

JAX_GPU_MEMORY = "XLA_PYTHON_CLIENT_"
"""How the variables begin that say how much of a GPU's memory a process of JAX takes, and when:
https://docs.jax.dev/en/latest/gpu_memory_allocation.html"""
PACKAGE_NAME = re.compile(r"\s*([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)")
UNLIMITED = PayloadLimits(secrets=sys.maxsize)
"""A payload is a file here."""
NO_DIGEST = "0" * 64
"""Of a callable that isn't pickled, since its hosts are threads."""


@dataclass(frozen=True)
class LocalRequest:
    """A request that this machine can run; `notices` say what it asks for and doesn't get here.

    `versions` say which version it gets of packages for which it asks for one.
    """

    job: FrayJob
    payload: Payload | None
    workplace: Workplace
    notices: tuple[str, ...]
    versions: tuple[str, ...]
    isolated_env: IsolatedEnv | None

    def under(self, job_id: str, folder: JobFolder) -> tuple[FrayJob, Workplace]:
        """Return job and workplace under the id that was found for the job, in its folder."""
        payload = None if self.payload is None else folder.payload
        spec = self.job.spec
        if self.isolated_env is not None:
            commands = (*self.isolated_env.build_commands(folder.environments), *spec.environment.setup)
            environment = spec.environment.model_copy(update={"setup": list(commands)})
            spec = spec.model_copy(update={"environment": environment})
        job = rename_job(self.job, job_id).model_copy(update={"spec": spec})
        return job, replace(self.workplace, payload=payload)


def prepare_job(
    job: FrayJob, spec: LocalSpec, environ: Mapping[str, str], directory: Path | None
) -> LocalRequest:
    """Return what a FrayJob means for a process of these variables; `directory` is where its hosts start.

    Its packages are those that are installed here, or installed for each host, as for a request.

    Raises:
        RequestError: it can't be run here as it is.
        OpenFilesError: it has too many hosts.
    """
    wanted = job.spec.environment
    working_dir = str(find_workspace(directory or Path(), field="spec.environment.workspace"))
    environment = EnvironmentConfig(working_dir, pip_packages=wanted.pip_packages, extras=wanted.extras)
    has_packages = bool(wanted.pip_packages or wanted.extras)
    base, isolated_env = derive_base_environment(environ), None
    if has_packages and spec.use_isolated_env:
        uv = find_uv(environ.get("PATH", ""))
        isolated_env = IsolatedEnv.of(environment, working_dir, uv=uv, field="spec.environment.extras")
    elif has_packages:
        _check_packages(environment, "spec.environment.pipPackages")
        base = with_this_python(base)
    machine = LocalMachine(socket.gethostname(), uuid.uuid4())
    plan = _judge(job, machine, has_packages=has_packages)
    return LocalRequest(
        job=job,
        payload=None,
        workplace=Workplace(machine, base, working_dir=working_dir),
        notices=tuple(_notices(job, plan, environment, environ, isolated=isolated_env is not None)),
        versions=() if isolated_env is not None else tuple(_versions(environment)),
        isolated_env=isolated_env,
    )


def _judge(
    job: FrayJob, machine: LocalMachine, *, has_payload: bool = False, has_packages: bool = False
) -> AttemptPlan:
    """Refuse what can't be run here, and return what the job means."""
    plan = build_attempt(job, attempt=1, settings=PLAN_SETTINGS)
    check_supported(job, plan, has_payload=has_payload, has_packages=has_packages)
    check_open_files(job, plan, allowed=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    build_local_pods(plan, machine)
    return plan


def prepare_request(
    request: JobRequest,
    spec: LocalSpec,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    parent: Parent | None,
    enter: Callable[[], object],
) -> LocalRequest:
    """Return what a request means for a process of these variables, which belongs to the job `parent`.

    Hosts that are threads call `enter`.

    Raises:
        RequestError: it can't be run here as it is.
        OpenFilesError: it has too many hosts.
    """
    request = request.with_environment()
    environment = request.environment
    assert environment is not None
    working_dir = str(find_workspace(environment.workspace or Path(), field="EnvironmentConfig.workspace"))
    isolated_env = None
    if spec.use_isolated_env:
        uv = find_uv(environ.get("PATH", ""))
        isolated_env = IsolatedEnv.of(environment, working_dir, uv=uv, field="EnvironmentConfig.extras")
    call = request.resolve_entrypoint().callable_entrypoint
    in_process = spec.mode == "thread" and call is not None
    payload = None if call is None or in_process else _encode(call)
    if call is not None and in_process:
        check_call(call.callable, call.args, call.kwargs)
    uploads = Uploads(payload=None if call is None else describe_payload(payload))
    built = build_manifest(request, spec, parent=parent, uploads=uploads)
    if isolated_env is None:
        # Not before: one with a password is refused above, by an error that doesn't show it.
        _check_packages(environment, "EnvironmentConfig.pip_packages")
    job = without_secrets(built)
    machine = LocalMachine(socket.gethostname(), uuid.uuid4())
    plan = _judge(job, machine, has_payload=True, has_packages=True)
    kept = job.spec.model_copy(update={"ttl_seconds_after_finished": KEPT_SECONDS})
    return LocalRequest(
        job=job.model_copy(update={"spec": kept}),
        payload=payload,
        workplace=Workplace(
            machine,
            {**with_this_python(derive_base_environment(environ)), **settings.to_env()},
            working_dir=working_dir,
            secrets=built.secret_variables,
            in_process=InProcessCall(call, enter) if call is not None and in_process else None,
        ),
        notices=tuple(_notices(job, plan, environment, environ, isolated=spec.use_isolated_env)),
        versions=() if spec.use_isolated_env else tuple(_versions(environment)),
        isolated_env=isolated_env,
    )


def _encode(call: types.CallableEntrypoint) -> Payload:
    return encode_callable(call.callable, call.args, call.kwargs, limits=UNLIMITED)


def describe_payload(payload: Payload | None) -> CallableEntrypoint:
    """Return what a FrayJob says of a callable whose processes find it as a file; None for threads."""
    # There is no Secret, but a FrayJob can't say so: the payload lies in the job's folder, or is none.
    sha256 = NO_DIGEST if payload is None else payload.sha256
    return CallableEntrypoint(secret_name="payload", sha256=sha256, python=PYTHON)


def without_secrets(built: JobManifest) -> FrayJob:
    """Return the FrayJob without the variables that refer to a Secret: processes get them by another way."""
    spec = built.job.spec
    plain = [entry for entry in spec.environment.env if entry.name not in built.secret_variables]
    environment = spec.environment.model_copy(update={"env": plain})
    return built.job.model_copy(update={"spec": spec.model_copy(update={"environment": environment})})


def with_this_python(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables such that `python3` is this interpreter, also where its venv isn't active."""
    path = environ.get("PATH", "")
    own = str(Path(sys.executable).parent)
    found = shutil.which("python3", path=path)
    if found is None or str(Path(found).parent) != own:
        path = f"{own}:{path}" if path else own
    return {**environ, "PATH": path}


def _check_packages(environment: EnvironmentConfig, field: str) -> None:
    missing = [package for package in environment.pip_packages if not is_installed(package)]
    if missing:
        raise UnsupportedFeatureError(
            field,
            "they aren't installed here, and processes run in this Python",
            "Install them into it, or use FRAY_CLUSTER_SPEC=local?use_isolated_env=true.",
            str(missing),
        )


def is_installed(requirement: str) -> bool:
    """Return whether a package of that name is there; which version is its user's matter."""
    return _find_version(requirement) is not None


def _find_version(requirement: str) -> str | None:
    name = PACKAGE_NAME.match(requirement)
    if name is None:
        return None
    try:
        return importlib.metadata.version(name[1])
    except importlib.metadata.PackageNotFoundError:
        return None


def _notices(
    job: FrayJob,
    plan: AttemptPlan,
    environment: EnvironmentConfig,
    environ: Mapping[str, str],
    *,
    isolated: bool,
) -> Iterator[str]:
    yield from build_notices(job, plan)
    variables = {*environ, *(entry.name for entry in job.spec.environment.env)}
    shared = plan.gang.kind is GangKind.GPU and plan.gang.hosts > 1
    if shared and not any(name.startswith(JAX_GPU_MEMORY) for name in variables):
        yield (
            f"{plan.gang.hosts} hosts share the GPUs of this machine: a process of JAX reserves 75 % of a "
            "GPU's memory, and the next one finds too little, unless the job sets "
            f"{JAX_GPU_MEMORY}PREALLOCATE=false"
        )
    if environment.extras and not isolated:
        yield f"extras {', '.join(environment.extras)}: processes run in this Python, as it is"


def _versions(environment: EnvironmentConfig) -> Iterator[str]:
    for package in environment.pip_packages:
        if PACKAGE_NAME.fullmatch(package.rstrip()) is None:  # it says more than a name, such as a version
            yield f"package {package}: processes use the one that is installed here, {_find_version(package)}"
