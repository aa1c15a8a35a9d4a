"""Packages that a job file names, on this machine: as those of a request from Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fray.cluster.cluster_spec import LocalSpec
from fray.cluster.local.requests import prepare_job
from fray.errors import InvalidRequestError, UnsupportedFeatureError
from fray.testing import build_frayjob

INSTALLED = ["pytest>=1", "cloudpickle"]


def test_what_is_installed_is_accepted_and_python3_is_this_python(tmp_path: Path) -> None:
    job = build_frayjob(environment={"pipPackages": INSTALLED, "extras": ["tpu"]})
    prepared = prepare_job(job, LocalSpec(), {"PATH": "/nowhere"}, tmp_path)
    assert prepared.isolated_env is None
    assert prepared.workplace.environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    notices = [*prepared.versions, *(notice for notice in prepared.notices if notice.startswith("extras"))]
    assert notices == [
        f"package pytest>=1: processes use the one that is installed here, {pytest.__version__}",
        "extras tpu: processes run in this Python, as it is",
    ]


def test_what_is_missing_is_named_with_both_ways_out() -> None:
    job = build_frayjob(environment={"pipPackages": [*INSTALLED, "no-such-package==1"]})
    with pytest.raises(UnsupportedFeatureError, match=r"pipPackages \['no-such-package==1'\]") as caught:
        prepare_job(job, LocalSpec(), {}, None)
    assert "Install them" in caught.value.next_step
    assert "use_isolated_env=true" in caught.value.next_step


def test_isolated_environments_get_the_packages(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.touch(mode=0o755)
    job = build_frayjob(environment={"pipPackages": ["no-such-package==1"]})
    prepared = prepare_job(job, LocalSpec(use_isolated_env=True), {"PATH": str(tmp_path)}, tmp_path)
    assert prepared.isolated_env is not None
    assert prepared.isolated_env.packages == ("no-such-package==1",)


def test_extras_need_a_project(tmp_path: Path) -> None:
    (tmp_path / "uv").touch(mode=0o755)
    job = build_frayjob(environment={"extras": ["tpu"]})
    with pytest.raises(InvalidRequestError, match=r"^spec\.environment\.extras: "):
        prepare_job(job, LocalSpec(use_isolated_env=True), {"PATH": str(tmp_path)}, tmp_path)


def test_a_file_that_names_none_runs_in_the_python_that_its_path_has() -> None:
    prepared = prepare_job(build_frayjob(), LocalSpec(use_isolated_env=True), {"PATH": "/nowhere"}, None)
    assert prepared.isolated_env is None
    assert prepared.workplace.environment["PATH"] == "/nowhere"
