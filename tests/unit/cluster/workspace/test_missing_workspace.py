"""A workspace that is no directory is refused by the name of what gives it, before a cluster is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.cli.app import app
from fray.cluster import Cluster, KubernetesCluster, LocalCluster
from fray.cluster.cluster_spec import KubernetesSpec
from fray.errors import InvalidRequestError
from fray.testing import build_frayjob
from fray.types import Entrypoint, JobRequest, create_environment


def build_kubernetes(state: Path) -> Cluster:
    del state
    return KubernetesCluster(KubernetesSpec(namespace="team"))


def build_local(state: Path) -> Cluster:
    return LocalCluster(environ={"FRAY_STATE_DIR": str(state)})


@pytest.mark.parametrize("build", [build_kubernetes, build_local])
def test_a_request_and_a_file_name_the_field_and_where_it_is_looked_for(
    build: Callable[[Path], Cluster], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    cluster, missing = build(tmp_path / "state"), tmp_path / "file"
    with pytest.raises(InvalidRequestError, match=rf"^spec\.environment\.workspace: {missing} is no") as file:
        cluster.create(build_frayjob(), directory=tmp_path, workspace=missing)
    assert "in the folder of the job file" in file.value.next_step
    environment = create_environment(workspace=missing)
    request = JobRequest("never", Entrypoint.from_binary("true", []), environment=environment)
    with pytest.raises(InvalidRequestError, match=rf"^EnvironmentConfig\.workspace: {missing} is no") as own:
        cluster.launch(request)
    assert "in the current directory" in own.value.next_step
    assert not cluster.has_launched


def test_apply_refuses_a_file_whose_workspace_is_not_here(tmp_path: Path) -> None:
    manifest = build_frayjob(environment={}).to_manifest()
    manifest["spec"]["environment"] = {"workspace": "nowhere"}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidRequestError, match=rf"^spec\.environment\.workspace: {tmp_path}/nowhere"):
        app(["apply", "-f", str(tmp_path / "job.json"), "--cluster", "k8s"], standalone_mode=False)
