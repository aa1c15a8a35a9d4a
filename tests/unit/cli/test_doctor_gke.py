"""`fray doctor` on a GKE cluster says what it could not ask."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fray.cli.app import app
from fray.cli.doctor import diagnose
from fray.cluster.cluster_spec import KubernetesSpec, LocalSpec
from tests.gke.kubeconfig import write_kubeconfig
from tests.unit.cli.test_pools import Text
from tests.unit.cluster.local_jobs import frayjob


def test_without_credentials_the_rest_is_told_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    environ = write_kubeconfig(tmp_path / "config", "gke_p_us-east5_c")
    output = Text()
    code = diagnose(KubernetesSpec(), None, environ=environ, output=output)
    assert code == 1
    assert "unknown   GKE" in output.text
    assert "gcloud auth application-default login" in output.text


def test_a_job_needs_no_pools_on_this_machine(tmp_path: Path) -> None:
    output = Text()
    job = frayjob(tpu="v5p-16")
    code = diagnose(LocalSpec(), None, job=job, environ={"FRAY_STATE_DIR": str(tmp_path)}, output=output)
    assert code == 0
    assert f"pools for {job.metadata.name}" in output.text


def test_a_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(frayjob(tpu="v5p-16").to_manifest()))
    words = ["doctor", "-f", str(tmp_path / "job.yaml"), "--cluster", "local"]
    result = CliRunner().invoke(app, words, env={"FRAY_STATE_DIR": str(tmp_path)})
    assert result.exit_code == 0, result.output
