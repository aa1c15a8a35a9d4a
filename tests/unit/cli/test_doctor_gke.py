"""`fray doctor` on a GKE cluster says what it could not ask."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fray.cli.doctor import diagnose
from fray.cluster.cluster_spec import KubernetesSpec
from tests.unit.cli.test_pools import Text


def test_without_credentials_the_rest_is_told_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    context = {"name": "c", "context": {"cluster": "gke_p_us-east5_c", "user": "u"}}
    (tmp_path / "config").write_text(yaml.safe_dump({"contexts": [context], "current-context": "c"}))
    output = Text()
    code = diagnose(KubernetesSpec(), None, environ={"KUBECONFIG": str(tmp_path / "config")}, output=output)
    assert code == 1
    assert "unknown   GKE" in output.text
    assert "gcloud auth application-default login" in output.text
