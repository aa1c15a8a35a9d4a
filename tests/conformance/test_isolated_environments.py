"""Virtual environments of a job's own: its packages are there, and those of its launcher aren't."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.cluster import Cluster, Entrypoint, JobRequest, ResourceConfig, create_cluster, create_environment
from fray.errors import InvalidRequestError, JobFailedError, UnsupportedFeatureError
from tests.conformance.backends import UV_VARIABLES, set_variables
from tests.conformance.jobs import PATIENCE, RefusedError, run, shell, texts


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path / "state"))
    with set_variables(UV_VARIABLES), create_cluster("local?use_isolated_env=true") as cluster:
        yield cluster
    assert not list((tmp_path / "state" / "jobs").glob("*/environments"))


def build_wheel(folder: Path, package: str) -> str:
    """Return the path of a wheel with one module, which says what it is."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{package}.py", f"WHAT = {package!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return str(path)


def look_around() -> tuple[str, str, bool, bool]:
    import stand_in  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed for this job only

    found = [importlib.util.find_spec(name) is not None for name in ("pydantic", "cloudpickle")]
    return stand_in.WHAT, sys.prefix, found[0], found[1]


def test_packages_are_installed_for_the_job_alone(isolated: Cluster, tmp_path: Path) -> None:
    environment = create_environment(workspace=tmp_path, pip_packages=[build_wheel(tmp_path, "stand_in")])
    resources = ResourceConfig(replicas=2)
    what, prefix, pydantic, pickling = run(
        isolated, "train", look_around, environment=environment, resources=resources
    )
    assert what == "stand_in"
    assert prefix.startswith(str(tmp_path / "state"))
    assert not pydantic
    assert pickling
    assert importlib.util.find_spec("stand_in") is None


def test_programs_are_in_it_too(isolated: Cluster) -> None:
    job = shell(isolated, "where", 'command -v python3; python3 -c "import sys; print(sys.prefix)"')
    isolated.wait(job, raise_on_failure=True, timeout=PATIENCE)
    program, prefix = texts(isolated.logs(job))
    assert program == f"{prefix}/bin/python3"
    assert "/where/environments/" in prefix


def test_exceptions_come_back_from_it(isolated: Cluster) -> None:
    job = isolated.launch(JobRequest("fails", Entrypoint.from_callable(refuse)))
    with pytest.raises(JobFailedError) as caught:
        isolated.wait(job, raise_on_failure=True, timeout=PATIENCE)
    assert isinstance(caught.value.__cause__, RefusedError)


def refuse() -> None:
    raise RefusedError("no", 1)


def test_a_package_that_is_not_there_fails_the_job_with_what_uv_says(
    isolated: Cluster, tmp_path: Path
) -> None:
    environment = create_environment(workspace=tmp_path, pip_packages=["fray-test-no-such-package==1.2"])
    job = shell(isolated, "missing", "echo never", environment=environment)
    info = isolated.wait(job, timeout=PATIENCE)
    assert info.status == "failed"
    assert "fray-test-no-such-package" in (info.error_message or "")
    assert "never" not in texts(isolated.logs(job))


def test_extras_need_a_project(isolated: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="extras"):
        shell(isolated, "no-project", "true", environment=create_environment(tmp_path, extras=["tpu"]))


def test_without_uv_it_says_what_to_install(isolated: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")  # uv may lie beside it
    with pytest.raises(UnsupportedFeatureError, match="pip install uv"):
        shell(isolated, "no-uv", "true")
