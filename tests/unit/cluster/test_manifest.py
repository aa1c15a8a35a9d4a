"""From requests to FrayJobs: always legal, nothing lost, nothing secret in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from fray.cluster.cluster_spec import (
    ClusterSpec,
    IrisSpec,
    KubernetesSpec,
    LocalSpec,
    RaySpec,
    parse_cluster_spec,
)
from fray.cluster.manifest import JobManifest, Uploads, build_manifest, find_parent
from fray.errors import (
    ClusterUnavailableError,
    InvalidJobError,
    InvalidRequestError,
    RequestError,
    UnsupportedFeatureError,
)
from fray.plan.expansion import expand_arguments, expand_text
from fray.plan.gang import derive_gang
from fray.types import (
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    ResourceConfig,
    TpuConfig,
    create_environment,
)
from fray.types.environment import is_confidential
from fray.types.request import CompleteRequest
from fray.types.sizes import parse_size
from fray.wire.frayjob import CallableEntrypoint, FrayJob, Parent, Workspace
from fray.wire.quantities import parse_quantity
from fray.wire.validation import validate_manifest
from tests.unit.cluster.requests import any_cluster, any_parent, any_request, any_uploads, main

K8S = KubernetesSpec(namespace="ml")
DIGEST = "0" * 64
PAYLOAD = CallableEntrypoint(secret_name="train-payload", sha256=DIGEST, python="3.11")
EXPANDED = {"HOME": "/root", "NAME": "wrong", "NOT": "wrong"}


def command(*argv: str) -> Entrypoint:
    return Entrypoint.from_command(argv or ["train"])


def build(cluster: ClusterSpec = K8S, /, **parts: Any) -> JobManifest:
    request = JobRequest(**{"name": "train", "entrypoint": command(), **parts})
    return build_manifest(request.with_environment(), cluster)


def spec_of(cluster: ClusterSpec = K8S, /, **parts: Any) -> dict[str, Any]:
    spec: dict[str, Any] = build(cluster, **parts).manifest["spec"]
    return spec


def having(**parts: Any) -> dict[str, Any]:
    """Parts of a request with such an environment."""
    return {"environment": EnvironmentConfig(workspace=".", **parts)}


def variables_of(built: JobManifest) -> dict[str, Any]:
    entries = built.manifest["spec"]["environment"]["env"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def test_two_launches_of_a_name_share_no_secret() -> None:
    request = JobRequest("train", command(), environment=create_environment()).with_environment()
    words = "ab" * 16, "cd" * 16
    built = [build_manifest(request, K8S, launch=word) for word in words]
    assert [each.manifest["metadata"]["annotations"]["fray.dev/launch"] for each in built] == list(words)
    assert [each.secret_name for each in built] == ["train-env-ababababab", "train-env-cdcdcdcdcd"]


def test_a_whole_request() -> None:
    request = JobRequest(
        name="train_lm",
        entrypoint=main,
        resources=ResourceConfig.with_tpu(
            "v5e-8", 2, topology="2x4", chips_per_host=4, cpu=0.5, ram="64g", disk="100G",
            preemptible=False, regions=["us-east5"], zones=["us-east5-a"],
        ),
        environment=EnvironmentConfig(
            workspace=".",
            pip_packages=["numpy"],
            env_vars={"LOG": "$(HOME)", "WANDB_API_KEY": "s3cret"},
            extras=["tpu"],
            setup=["make"],
            secrets=["shared"],
            cache_volume="packages",
        ),
        max_retries_failure=2,
        max_retries_preemption=5,
        timeout=3661,
        priority_class="high",
    )  # fmt: skip
    cluster = KubernetesSpec(
        namespace="ml", context="gke", image="i:1", queue="tpu", service_account="me", staging="gs://b"
    )
    built = build_manifest(
        request.with_environment(),
        cluster,
        parent=Parent(name="sweep", root="top"),
        uploads=Uploads(payload=PAYLOAD, workspace=Workspace(url="gs://b/x", sha256=DIGEST)),
    )
    name = "train-lm-ab1d4b91"
    within = "k8s?namespace=ml&image=i:1&queue=tpu&service_account=me&staging=gs://b"
    assert built.name == name
    assert built.secret_name == f"{name}-env"
    assert built.secret_variables == {"WANDB_API_KEY": "s3cret"}
    reference = {"secretKeyRef": {"name": f"{name}-env", "key": "WANDB_API_KEY"}}
    assert built.manifest == {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "annotations": {"fray.dev/original-name": "train_lm"},
        },
        "spec": {
            "entrypoint": {
                "callable": {"secretName": "train-payload", "sha256": DIGEST, "python": "3.11"}
            },
            "replicas": 2,
            "resources": {
                "cpu": "500m",
                "memory": "64Gi",
                "disk": "100G",
                "tpu": {"type": "v5e-8", "topology": "2x4", "chipsPerHost": 4},
            },
            "placement": {"preemptible": False, "regions": ["us-east5"], "zones": ["us-east5-a"]},
            "environment": {
                "pipPackages": ["numpy"],
                "extras": ["tpu"],
                "setup": ["make"],
                "envFrom": [{"secretRef": {"name": "shared"}}],
                "workspace": {"url": "gs://b/x", "sha256": DIGEST},
                "cacheVolume": "packages",
                "image": "i:1",
                "env": [
                    {"name": "FRAY_CLUSTER_SPEC", "value": within},
                    {"name": "FRAY_CLIENT_SPEC", "value": within},
                    {"name": "LOG", "value": "$$(HOME)"},
                    {"name": "WANDB_API_KEY", "valueFrom": reference},
                ],
            },
            "serviceAccountName": "me",
            "retries": {"failures": 2, "preemptions": 5},
            "timeouts": {"totalSeconds": 3661},
            "parent": {"name": "sweep", "root": "top"},
            "queue": {"name": "tpu", "priorityClass": "high"},
        },
    }  # fmt: skip


# --- any request ----------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(request=any_request(), cluster=any_cluster(), parent=any_parent(), uploads=any_uploads())
def test_any_request_becomes_a_legal_frayjob_that_says_all_of_it(
    request: JobRequest, cluster: ClusterSpec, parent: Parent | None, uploads: Uploads
) -> None:
    request = request.with_environment()
    built = build_manifest(request, cluster, parent=parent, uploads=uploads)
    assert json.loads(json.dumps(built.manifest)) == built.manifest
    job = validate_manifest(built.manifest)
    assert job.to_manifest() == built.manifest
    assert build_manifest(request, cluster, parent=parent, uploads=uploads) == built
    _check_hosts(request, job)
    _check_environment(request, cluster, built)
    assert job.metadata.annotations.get("fray.dev/original-name", job.metadata.name) == request.name
    assert job.spec.parent == parent
    assert (job.spec.retries.failures, job.spec.retries.preemptions) == (
        request.max_retries_failure,
        request.max_retries_preemption,
    )
    assert request.timeout_seconds == job.spec.timeouts.total_seconds


def _check_hosts(request: JobRequest, job: FrayJob) -> None:
    resources = request.gang_resources
    gang = derive_gang(job.spec)
    assert (gang.slices, gang.hosts_per_slice) == resources.gang_shape()[:2]
    chips = gang.tpu.chips_per_host if gang.tpu else gang.gpu.count if gang.gpu else 0
    assert chips == resources.gang_shape().chips_per_vm
    assert chips * gang.hosts == resources.chip_count()
    assert job.spec.resources.memory is not None
    assert parse_quantity(job.spec.resources.memory) == parse_size("ram", resources.ram)
    argv = request.resolve_entrypoint().binary_entrypoint
    if argv is None:
        assert job.spec.entrypoint.callable is not None
    else:
        assert job.spec.entrypoint.command is not None
        assert expand_arguments(job.spec.entrypoint.command, EXPANDED) == list(argv.argv)


def _check_environment(request: CompleteRequest, cluster: ClusterSpec, built: JobManifest) -> None:
    given_values = request.environment.env_vars
    found = variables_of(built)
    for name, value in given_values.items():
        if is_confidential(name, value):
            assert built.secret_variables[name] == value
            assert found[name] == {"secretKeyRef": {"name": built.secret_name, "key": name}}
        else:
            assert expand_text(found[name], EXPANDED) == value
            assert name not in built.secret_variables
    if "FRAY_CLUSTER_SPEC" not in given_values:
        within = parse_cluster_spec(expand_text(found["FRAY_CLUSTER_SPEC"], EXPANDED))
        assert getattr(within, "namespace", None) == getattr(cluster, "namespace", None)
        assert getattr(within, "context", None) is None
    assert len(found) == len(built.manifest["spec"]["environment"]["env"])


# --- one part at a time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [["sh", "-c", "echo $$ $(NAME) ${HOME} $HOME"], ["a", "", "$$$(NOT)$"]])
def test_a_program_gets_its_arguments_as_they_were_given(argv: list[str]) -> None:
    written = spec_of(entrypoint=command(*argv))["entrypoint"]["command"]
    assert expand_arguments(written, EXPANDED) == argv


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train_lm", "train-lm-ab1d4b91"),
        ("Train", "train-e99c90db"),
        ("a.b", "a-b-2e7336dc"),
        ("a" * 64, "a" * 54 + "-ffe054fe"),
    ],
)
def test_a_name_that_is_not_legal_is_replaced_and_kept(name: str, expected: str) -> None:
    metadata = build(name=name).manifest["metadata"]
    assert metadata["name"] == expected
    assert metadata["annotations"] == {"fray.dev/original-name": name}


def test_a_legal_name_stays_and_needs_no_annotation() -> None:
    assert build().manifest["metadata"] == {"name": "train", "namespace": "ml"}


def test_two_jobs_of_one_name_can_have_two_objects() -> None:
    request = JobRequest("train", command()).with_environment()
    built = build_manifest(request, K8S, name="train-2")
    assert built.name == "train-2"
    assert built.secret_name == "train-2-env"
    assert built.manifest["metadata"]["annotations"] == {"fray.dev/original-name": "train"}


@pytest.mark.parametrize(
    ("cluster", "resources", "docker_image", "expected"),
    [
        (K8S, ResourceConfig(), None, None),
        (KubernetesSpec(image="spec"), ResourceConfig(), None, "spec"),
        (KubernetesSpec(image="spec"), ResourceConfig(image="resources"), None, "resources"),
        (KubernetesSpec(image="spec"), ResourceConfig(image="resources"), "environment", "environment"),
        (LocalSpec(), ResourceConfig(image="resources"), None, "resources"),
    ],
)
def test_whose_image_it_is(
    cluster: ClusterSpec, resources: ResourceConfig, docker_image: str | None, expected: str | None
) -> None:
    source = {"workspace": "."} if docker_image is None else {"docker_image": docker_image}
    environment = EnvironmentConfig(**source)
    spec = spec_of(cluster, resources=resources, environment=environment)
    assert spec["environment"].get("image") == expected


def test_a_requests_own_queue_and_account_come_first() -> None:
    cluster = KubernetesSpec(queue="theirs", service_account="theirs")
    spec = spec_of(cluster, queue="mine", service_account="my-account")
    assert spec["queue"] == {"name": "mine"}
    assert spec["serviceAccountName"] == "my-account"


@pytest.mark.parametrize("regions", [None, ["*"]])
def test_any_region(regions: list[str] | None) -> None:
    assert spec_of(resources=ResourceConfig(regions=regions))["placement"] == {"preemptible": True}


@pytest.mark.parametrize(
    ("resources", "platform"),
    [
        (ResourceConfig(), "cpu"),
        (ResourceConfig.with_gpu("L4"), ""),
        (ResourceConfig.with_tpu("v5p-8"), None),
    ],
)
def test_the_platform_of_jax(resources: ResourceConfig, platform: str | None) -> None:
    assert variables_of(build(resources=resources)).get("JAX_PLATFORMS") == platform


def test_the_documented_variables_cannot_be_forgotten() -> None:
    request = JobRequest("train", command())
    with pytest.raises(InvalidRequestError, match=r"isn't filled in\nPass request\.with_env") as caught:
        build_manifest(request, K8S)  # type: ignore[arg-type]
    assert caught.value.field == "JobRequest.environment"
    assert variables_of(build())["TOKENIZERS_PARALLELISM"] == "false"


def test_users_variables_win() -> None:
    environment = EnvironmentConfig(
        workspace=".", env_vars={"JAX_PLATFORMS": "x", "FRAY_CLUSTER_SPEC": "local"}
    )
    found = variables_of(build(environment=environment))
    assert found["JAX_PLATFORMS"] == "x"
    assert found["FRAY_CLUSTER_SPEC"] == "local"
    assert found["FRAY_CLIENT_SPEC"] == "k8s?namespace=ml"


def test_nothing_confidential_is_in_the_frayjob_or_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret-1")
    environment = create_environment(
        env_vars={"DB": "postgres://me:s3cret-2@db/x", "MY_PASSWORD": "s3cret-3"}
    )
    built = build(environment=environment)
    assert sorted(built.secret_variables.values()) == ["postgres://me:s3cret-2@db/x", "s3cret-1", "s3cret-3"]
    assert "s3cret" not in json.dumps(built.manifest)
    assert "s3cret" not in repr(built)


@pytest.mark.parametrize(
    "uploads",
    [
        Uploads(payload=CallableEntrypoint(url="s3://a:s3cret@b", sha256=DIGEST, python="3.11")),
        Uploads(workspace=Workspace(url="az://b?sig=s3cret", sha256=DIGEST)),
    ],
)
def test_no_url_of_an_upload_holds_credentials(uploads: Uploads) -> None:
    request = JobRequest(name="train", entrypoint=main).with_environment()
    with pytest.raises(InvalidRequestError, match="url: holds a password or a token\nTake it out") as caught:
        build_manifest(request, K8S, uploads=uploads)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("cluster", [RaySpec(cluster="us"), IrisSpec()])
def test_a_cluster_that_cannot_be_used_gets_no_job(cluster: ClusterSpec) -> None:
    with pytest.raises(ClusterUnavailableError, match=f"'{str(cluster).partition('?')[0]}' is not available"):
        build(cluster)


def test_a_package_may_name_a_variable_that_holds_its_token() -> None:
    package = "demo @ git+https://oauth2:${GIT_TOKEN}@gitlab.com/x@v1"
    built = build(**having(pip_packages=[package], env_vars={"GIT_TOKEN": "s3cret"}))
    assert built.manifest["spec"]["environment"]["pipPackages"] == [package]
    assert "s3cret" not in json.dumps(built.manifest)


def test_gpus_have_gkes_names() -> None:
    resources = ResourceConfig(device=GpuConfig("A100-80G", 4))
    assert spec_of(resources=resources)["resources"]["gpu"] == {"type": "nvidia-a100-80gb", "count": 4}


def test_any_gpu_is_this_machines_business() -> None:
    resources = ResourceConfig.with_gpu()
    assert "gpu" not in spec_of(LocalSpec(), resources=resources)["resources"]
    with pytest.raises(UnsupportedFeatureError, match=r"'auto' is not supported.*\nName one: .*L4"):
        build(resources=resources)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"FRAY_JOB_NAME": ""}, None),
        ({"FRAY_JOB_NAME": "a"}, Parent(name="a", root="a")),
        ({"FRAY_JOB_NAME": "a", "FRAY_ROOT_JOB": "top"}, Parent(name="a", root="top")),
    ],
)
def test_who_the_parent_is(variables: dict[str, str], expected: Parent | None) -> None:
    assert find_parent(variables) == expected


# --- what can't be said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "kind", "told"),
    [
        ({"entrypoint": main}, InvalidRequestError, "callable without a payload\nEncode it"),
        ({"priority_class": "high"}, InvalidRequestError, "without a queue\nSet JobRequest.queue"),
        ({"queue": "My Queue"}, InvalidJobError, "spec.queue.name"),
        ({"service_account": "Me"}, InvalidJobError, "spec.serviceAccountName"),
        ({"resources": ResourceConfig(regions=["a b"])}, InvalidJobError, "spec.placement.regions"),
        ({"resources": ResourceConfig(zones=["-"])}, InvalidJobError, "spec.placement.zones"),
        (
            {"resources": ResourceConfig(device=TpuConfig("v3-8"), replicas=2)},
            InvalidJobError,
            "spec.replicas",
        ),
        (
            {"environment": EnvironmentConfig(workspace=".", env_vars={"1 a": "x"})},
            InvalidJobError,
            "spec.environment.env\\[3\\].name",
        ),
        (
            {"environment": EnvironmentConfig(workspace=".", secrets=["x" * 300])},
            InvalidJobError,
            "spec.environment.envFrom\\[0\\].secretRef.name",
        ),
        (
            {"environment": EnvironmentConfig(workspace=".", cache_volume="A")},
            InvalidJobError,
            "spec.environment.cacheVolume",
        ),
        ({"entrypoint": command("x", "y" * 131073)}, InvalidJobError, "spec.entrypoint.command\\[1\\]"),
        (
            {"entrypoint": command(*["x"] * 1025)},
            InvalidJobError,
            "spec.entrypoint.command: must have at most",
        ),
        ({"queue": "a", "priority_class": "High"}, InvalidJobError, "spec.queue.priorityClass"),
        ({"queue": "a" * 254}, InvalidJobError, "spec.queue.name"),
        (having(secrets=["A_B"]), InvalidRequestError, "secrets\\[0\\]: is 'A_B'\nNames of Secrets"),
        (
            having(pip_packages=["a", "git+https://s3cret@h/x"]),
            InvalidRequestError,
            "packages\\[1\\]: holds a",
        ),
        (having(pip_packages=["a" * 2000]), InvalidJobError, "pipPackages\\[0\\]"),
        (having(pip_packages=["a"] * 300), InvalidJobError, "pipPackages: must have at most 256"),
        (having(setup=["a" * 70_000]), InvalidJobError, "setup\\[0\\]"),
        (having(env_vars={"A": "x" * 200_000}), InvalidJobError, "env\\[3\\].value"),
        (having(env_vars={"A/TOKEN": "x"}), InvalidJobError, "env\\[3\\].name"),
        (having(env_vars={f"A{n}": "" for n in range(2000)}), InvalidJobError, "env: must have at most 1024"),
        (having(env_vars={"TOKEN": "x" * 200_000}), InvalidRequestError, "takes 200,000 bytes\nPut it into"),
        (
            having(env_vars={f"TOKEN_{n}": "x" * 100_000 for n in range(11)}),
            InvalidRequestError,
            "confidential values of 1,100,",
        ),
    ],
)
def test_what_a_cluster_would_refuse_is_refused_here(
    parts: dict[str, Any], kind: type[RequestError], told: str
) -> None:
    with pytest.raises(kind, match=told) as caught:
        build(**parts)
    assert "s3cret" not in str(caught.value)
    assert caught.value.next_step


def test_all_that_is_wrong_is_named_and_no_value_shown() -> None:
    wrong = having(env_vars={"1 s": "s3cret"}, cache_volume="S3CRET/")
    with pytest.raises(InvalidJobError) as caught:
        build(queue="S3CRET/", **wrong)
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"spec.queue.name", "spec.environment.env[3].name", "spec.environment.cacheVolume"}
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
