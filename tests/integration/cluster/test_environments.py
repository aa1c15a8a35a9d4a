"""From a launch to what its pod's command finds: client, API server and operator agree with the runtime.

The test plays JobSet, the init container and the kubelet: it runs the very command of the container, with the
pod's folders in one of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest

import fray
from e2e.cluster.controlplane import ControlPlane
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.types import Entrypoint, JobRequest, create_environment
from tests.integration.cluster.jobs import decoded
from tests.integration.controller.conftest import (
    admin,
    hands,
    kubeconfig,
    new_hands,
    operator,
    settings_for,
)
from tests.integration.controller.hands import Hands, Manifest
from tests.integration.controller.operator_thread import OperatorThread
from tests.unit.runtime.test_preparation import UV, write_wheel

__all__ = ["admin", "hands", "kubeconfig", "new_hands", "operator", "settings_for"]

FOLDER = "/var/run/fray"


@pytest.fixture
def cluster(hands: Hands, control_plane: ControlPlane) -> Iterator[KubernetesCluster]:
    spec = KubernetesSpec(namespace=hands.namespace)
    with KubernetesCluster(spec, environ={"KUBECONFIG": str(control_plane.kubeconfig)}) as made:
        yield made


def mount(hands: Hands, spec: Manifest, root: Path) -> None:
    """Fill the pod's folders: the runtime as the init container does, Secrets as the kubelet does."""
    (main,) = spec["containers"]
    places = {
        each["name"]: root / each["mountPath"].removeprefix(f"{FOLDER}/").removeprefix("/")
        for each in main["volumeMounts"]
    }
    for volume in spec["volumes"]:
        whole = volume.get("secret", {})
        sources = [whole["secretName"]] if whole else []
        sources += [each["secret"]["name"] for each in volume.get("projected", {}).get("sources", [])]
        for name in sources:
            places[volume["name"]].mkdir(parents=True, exist_ok=True)
            found = hands.api.get(f"{hands.core}/secrets/{name}")
            if found.status == 404 and whole.get("optional"):
                continue
            for key, data in decoded(found.body).items():
                (places[volume["name"]] / key).write_bytes(data)
    ignored = shutil.ignore_patterns("__pycache__")
    for package in (fray, cloudpickle):
        assert package.__file__ is not None
        target = places["fray-runtime"] / package.__name__
        shutil.copytree(Path(package.__file__).parent, target, ignore=ignored)
    (places["fray-runtime"] / "uv").symlink_to(UV)


def test_a_callable_finds_its_code_and_packages_by_the_command_of_its_pod(
    cluster: KubernetesCluster, hands: Hands, operator: OperatorThread, tmp_path: Path
) -> None:
    code, root = tmp_path / "code", tmp_path / "pod"
    code.mkdir()
    (code / "data.bin").write_bytes(os.urandom(1_500_000))
    wheel = write_wheel(code / "wheels", "tiny")

    def look() -> None:
        import tiny  # type: ignore[import-not-found]  # noqa: PLC0415

        print(tiny.TELL, Path("data.bin").stat().st_size, Path("set-up").read_text().strip())

    environment = create_environment(
        workspace=code, pip_packages=[f"./wheels/{wheel.name}"], setup=["echo '$(x) $$' > set-up"]
    )
    cluster.launch(JobRequest("train", Entrypoint.from_callable(look), environment=environment))
    jobset = hands.await_jobset("train-a1")
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    mount(hands, spec, root)
    subprocess.run([str(UV), "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    # What the kubelet does with `$$`, and the folders.
    command = [
        each.replace("$$", "$").replace(FOLDER, str(root)) for each in spec["containers"][0]["command"]
    ]
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("FRAY_", "PYTHON"))}
    environ = {**outside, "PATH": f"{tmp_path / 'venv/bin'}:{os.environ['PATH']}", "UV_OFFLINE": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tiny 1.0 1500000 $(x) $$\n"
