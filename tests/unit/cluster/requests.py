"""Any legal JobRequest by chance, and any cluster that it may be meant for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fray.accelerators import legal_gpu_counts, legal_gpu_types, legal_topologies, legal_tpu_names
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec, LocalSpec
from fray.cluster.manifest import Uploads
from fray.types import (
    CpuConfig,
    DeviceConfig,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    ResourceConfig,
    TpuConfig,
)
from fray.wire.frayjob import CallableEntrypoint, Parent, Workspace

__all__ = ["any_cluster", "any_kubernetes", "any_parent", "any_request", "any_text", "any_uploads", "main"]

OBJECTS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


def main() -> None:
    """Stands for any callable of a user."""


def any_text(**limits: Any) -> st.SearchStrategy[str]:
    """Text that a process can be given."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), **limits)


def _names() -> st.SearchStrategy[str]:
    printable = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
    return st.one_of(
        st.sampled_from(["train", "train_lm", "Train.LM", "a/b", "7b", "x" * 80, "ä"]),
        printable.filter(lambda name: name.isprintable() and " " not in name),
    )


@st.composite
def _devices(draw: st.DrawFn) -> DeviceConfig:
    kind = draw(st.sampled_from(["cpu", "gpu", "tpu"]))
    if kind == "cpu":
        return CpuConfig()
    if kind == "gpu":
        found = draw(st.sampled_from(legal_gpu_types()))
        return GpuConfig(found, draw(st.sampled_from(legal_gpu_counts(found))))
    name = draw(st.sampled_from([name for name in legal_tpu_names() if not name.startswith("v3-")]))
    topology = draw(st.none() | st.sampled_from(legal_topologies(name)))
    per_host = draw(st.sampled_from([None, 4, 8])) if name in ("v6e-8", "v5litepod-8") else None
    return TpuConfig(name, topology=topology, chips_per_host=per_host)


_sizes = st.one_of(
    st.sampled_from(["4g", "512m", "16GB", "32Gi", "100G", "1.5t", "2e9"]), st.integers(2**20, 2**62)
)
_places = st.none() | st.lists(
    st.sampled_from(["us-east5", "us-east5-a", "eu-west4"]), min_size=1, max_size=3
)


@st.composite
def _resources(draw: st.DrawFn) -> ResourceConfig:
    preemptible = draw(st.booleans())
    return ResourceConfig(
        cpu=draw(st.sampled_from([1, 0.5, "250m", "8", 96, 0.0001]) | st.floats(0.001, 1000)),
        ram=draw(_sizes),
        disk=draw(_sizes),
        device=draw(_devices()),
        replicas=draw(st.integers(1, 10_000)),
        preemptible=preemptible,
        spot=preemptible and draw(st.booleans()),
        regions=draw(st.just(["*"]) | _places),
        zones=draw(_places),
        image=draw(st.none() | st.just("gcr.io/x/y:1")),
    )


@st.composite
def _environments(draw: st.DrawFn) -> EnvironmentConfig:
    source = draw(st.sampled_from([{"workspace": "."}, {"docker_image": "python:3.12"}]))
    names = st.one_of(
        st.from_regex(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,20}", fullmatch=True),
        st.sampled_from(["WANDB_API_KEY", "HF_TOKEN", "JAX_PLATFORMS", "FRAY_CLUSTER_SPEC"]),
    )
    packages = st.lists(any_text(min_size=1, max_size=20).filter(str.strip), max_size=3)
    values = st.sampled_from(["", "$(HOME)", "$$", "a$", "postgres://a:b@c/d"]) | any_text(max_size=20)
    return EnvironmentConfig(
        **source,
        pip_packages=draw(packages),
        env_vars=draw(st.dictionaries(names, values, max_size=5)),
        extras=draw(st.lists(OBJECTS, max_size=2)),
        setup=draw(packages),
        secrets=draw(st.lists(OBJECTS, max_size=2)),
        cache_volume=draw(st.none() | OBJECTS),
    )


@st.composite
def any_request(draw: st.DrawFn) -> JobRequest:
    """A request that means something; its callable is always `main`."""
    arguments = st.lists(st.sampled_from(["$(HOME)", "$$", "", "-x"]) | any_text(max_size=10), max_size=4)
    program = st.builds(lambda name, args: Entrypoint.from_command([name, *args]), OBJECTS, arguments)
    queue = draw(st.none() | OBJECTS)
    return JobRequest(
        name=draw(_names()),
        entrypoint=draw(st.just(main) | st.just("json.tool") | program),
        resources=draw(_resources()),
        environment=draw(st.none() | _environments()),
        max_retries_failure=draw(st.integers(0, 1_000_000)),
        max_retries_preemption=draw(st.integers(0, 1_000_000)),
        replicas=draw(st.none() | st.integers(1, 10_000)),
        timeout=draw(st.none() | st.floats(0.001, 2**31 - 1)),
        queue=queue,
        priority_class=None if queue is None else draw(st.none() | OBJECTS),
        service_account=draw(st.none() | OBJECTS),
    )


def any_kubernetes() -> st.SearchStrategy[KubernetesSpec]:
    """A Kubernetes cluster with any defaults."""
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.isprintable)
    return st.builds(
        KubernetesSpec,
        namespace=st.none() | OBJECTS,
        context=st.none() | text,
        image=st.none() | st.sampled_from(["x", "gcr.io/a/b@sha256:00"]),
        queue=st.none() | OBJECTS,
        service_account=st.none() | OBJECTS,
        staging=st.none() | st.sampled_from(["gs://bucket/a+b%20c?d=e&f", "file:///tmp/x"]),
    )


def any_cluster() -> st.SearchStrategy[ClusterSpec]:
    """A cluster that exists in this version."""
    local = st.sampled_from([LocalSpec(), LocalSpec(use_isolated_env=True), LocalSpec(mode="thread")])
    return local | any_kubernetes()


def any_parent() -> st.SearchStrategy[Parent | None]:
    """The job that launches, or nobody."""
    return st.none() | st.builds(Parent, name=OBJECTS, root=OBJECTS)


@st.composite
def any_uploads(draw: st.DrawFn) -> Uploads:
    """A payload, and perhaps a workspace."""
    payload = CallableEntrypoint(secret_name=draw(OBJECTS), sha256=draw(DIGESTS), python="3.11")
    source = draw(st.sampled_from([{"secret_name": "code"}, {"url": "gs://bucket/code.tar"}, None]))
    workspace = None if source is None else Workspace(**source, sha256=draw(DIGESTS))
    return Uploads(payload=payload, workspace=workspace)
