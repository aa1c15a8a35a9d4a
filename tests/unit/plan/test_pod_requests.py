"""What a pod asks for and mounts: the job's requests, capped where no host has as much."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.injection import RUNTIME_MOUNT
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import AUTH_SECRET
from tests.unit.plan.jobset_rules import main_container, pod_template


def plan_with(**spec: Any) -> AttemptPlan:
    return build_attempt(build_frayjob(**spec), attempt=1, settings=PlanSettings())


@pytest.mark.parametrize(
    ("tpu", "field", "asked", "requested", "noticed"),
    [
        # ct5p-hightpu-4t: 208 vCPU and 448 GB, of which nine tenths, rounded down, are for pods.
        ("v5p-8", "cpu", 187, "187", False),
        ("v5p-8", "cpu", "187.0", "187.0", False),
        ("v5p-8", "cpu", "187001m", "187", True),
        ("v5p-8", "cpu", 208, "187", True),
        ("v5p-8", "memory", "403000M", "403000M", False),
        ("v5p-8", "memory", "403001M", "403G", True),
        ("v5p-8", "memory", "375Gi", "375Gi", False),
        ("v5p-8", "memory", "376Gi", "403G", True),
        ("v5p-8", "memory", "1e99", "403G", True),
        ("v6e-16", "cpu", 1000, "162", True),
        ("v6e-8", "cpu", 1000, "162", True),
        ("v3-8", "memory", "9Ti", "306G", True),
        ("v4lite-4", "memory", "9Ti", "9Ti", False),
        ("v5p-8", "disk", "100Ti", "100Ti", False),
    ],
)
def test_requests_are_capped_at_what_the_tpus_host_leaves_to_pods(
    tpu: str, field: str, asked: int | str, requested: str, noticed: bool
) -> None:
    plan = plan_with(resources={"tpu": {"type": tpu}, field: asked})
    key = {"disk": "ephemeral-storage"}.get(field, field)
    requests = main_container(plan.jobset)["resources"]["requests"]
    assert requests[key] == requested
    assert len(plan.notices) == noticed
    if noticed:
        assert f"{field} {asked} " in plan.notices[0]
        assert requested in plan.notices[0]


def test_only_chips_have_a_limit() -> None:
    gpu = main_container(plan_with(resources={"cpu": 4, "gpu": {"type": "nvidia-l4", "count": 2}}).jobset)
    assert gpu["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    cpu = main_container(plan_with(resources={"cpu": 4}).jobset)
    assert cpu["resources"] == {"requests": {"cpu": "4"}}


def test_a_cpu_jobs_requests_stand_however_large() -> None:
    plan = plan_with(resources={"cpu": 100000, "memory": "9E"})
    assert main_container(plan.jobset)["resources"]["requests"] == {"cpu": "100000", "memory": "9E"}
    assert plan.notices == ()


def test_shared_memory_is_no_64_mebibytes() -> None:
    spec = pod_template(plan_with().jobset)["spec"]
    assert spec["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]


def test_secrets_are_mounted_readable_for_whatever_user_the_image_has() -> None:
    spec = pod_template(
        plan_with(
            entrypoint={"callable": {"secretName": "payload", "sha256": "ab" * 32, "python": "3.11"}},
            environment={"workspace": {"secretName": "code", "sha256": "cd" * 32}},
        ).jobset
    )["spec"]
    mounted = {
        volume["secret"]["secretName"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume
    }
    # The kubelet makes the files root's: without an fsGroup others read them only by the last digit.
    assert {name: oct(secret["defaultMode"]) for name, secret in mounted.items()} == {
        "payload": "0o444",
        "code": "0o444",
        AUTH_SECRET: "0o444",
    }
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["payload"]["readOnly"]
    assert mounts["workspace-archive"]["readOnly"]
    assert "readOnly" not in mounts["workspace"]


def test_a_workspace_of_several_secrets_is_mounted_as_one_folder() -> None:
    workspace = {"secretName": "code", "moreSecrets": ["code-1"], "sha256": "cd" * 32}
    spec = pod_template(plan_with(environment={"workspace": workspace}).jobset)["spec"]
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "workspace-archive")
    sources = [source["secret"]["name"] for source in volume["projected"]["sources"]]
    assert (sources, volume["projected"]["defaultMode"]) == (["code", "code-1"], 0o444)


def test_a_workspace_in_object_storage_is_not_mounted() -> None:
    workspace = {"url": "gs://bucket/$(x)", "sha256": "cd" * 32}
    jobset = plan_with(environment={"workspace": workspace}).jobset
    names = [volume["name"] for volume in pod_template(jobset)["spec"]["volumes"]]
    assert names == ["shm", "workspace", "fray-runtime"]
    assert "--workspace=gs://bucket/$$(x)" in main_container(jobset)["command"]


def test_code_comes_first_then_packages_then_setup_then_the_entrypoint() -> None:
    environment = {
        "workspace": {"secretName": "code", "sha256": "cd" * 32},
        "pipPackages": ["a", "-r more.txt", "b[${TOKEN}]$(c)"],
        "extras": ["tpu"],
        "setup": ["one"],
        "cacheVolume": "cache",
    }
    command = main_container(plan_with(environment=environment).jobset)["command"]
    assert command[:3] == ["python3", f"{RUNTIME_MOUNT}/fray/runtime/start.py", "prepare"]
    end = command.index("--")
    assert command[3:end] == [
        "--workspace=/var/run/fray/workspace-archive",
        f"--sha256={'cd' * 32}",
        "--into=/var/run/fray/workspace",
        "--package=a",
        "--package=-r more.txt",
        "--package=b[${TOKEN}]$$(c)",
        "--extra=tpu",
        "--cache=/var/cache/fray",
    ]
    setup = 'set -e\none\nexec "$@"'
    assert command[end + 1 :] == ["/bin/sh", "-c", setup, "setup", "python", "-m", "train"]


def test_a_command_runs_as_it_was_written() -> None:
    argv = ["./run.sh", "", "a b", "$(FRAY_HOST)", "$HOME", "'"]
    assert main_container(plan_with(entrypoint={"command": argv}).jobset)["command"] == argv


def test_a_callable_is_checked_against_its_digest_and_python() -> None:
    entrypoint = {"callable": {"secretName": "payload", "sha256": "ab" * 32, "python": "3.12"}}
    mine = {"image": "mine"}
    command = main_container(plan_with(entrypoint=entrypoint, environment=mine).jobset)["command"]
    assert command[:3] == ["python3", f"{RUNTIME_MOUNT}/fray/runtime/start.py", "call"]
    assert command[command.index("--sha256") + 1] == "ab" * 32
    assert command[command.index("--python") + 1] == "3.12"


def test_setup_commands_come_before_the_entrypoint_and_stop_at_the_first_that_fails() -> None:
    command = main_container(plan_with(environment={"setup": ["one", "two"]}).jobset)["command"]
    assert command == ["/bin/sh", "-c", 'set -e\none\ntwo\nexec "$@"', "setup", "python", "-m", "train"]


def test_a_staging_url_reaches_the_command_as_it_is_written() -> None:
    url = "gs://bucket/$(FRAY_HOST)/$x"
    entrypoint = {"callable": {"url": url, "sha256": "ab" * 32, "python": "3.12"}}
    plan = plan_with(entrypoint=entrypoint, environment={"image": "mine"})
    assert main_container(plan.jobset)["command"][3] == "gs://bucket/$$(FRAY_HOST)/$x"
    assert [volume["name"] for volume in pod_template(plan.jobset)["spec"]["volumes"]] == [
        "shm",
        "fray-runtime",
        AUTH_SECRET,
    ]
