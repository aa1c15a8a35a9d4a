"""What comes into pods before their entrypoint: Fray's runtime, the user's code and packages, by real pods.

No network is needed: packages are wheels in the workspace. That the runtime also runs on musl follows from
how it is made (pure Python, and a static uv); no image of that kind is here to show it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.kubeconfig import CONTEXT
from e2e.job_namespace import JobNamespace, build_job
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.types import Entrypoint, JobRequest, JobStatus, LogLine, ResourceConfig, create_environment

PATIENCE = 300.0
WORKSPACE = "/var/run/fray/workspace"
"""Images may have a link on the way to it."""
WITHOUT_FRAY = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
"""The runtime image's Python, not the environment that Fray is installed in; its user can't write there."""
OFFLINE = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1"}
SMALL = ResourceConfig(cpu=0.1, ram="64m", disk="64m")


@pytest.fixture
def cluster(jobs: JobNamespace) -> Iterator[KubernetesCluster]:
    """The Python client of the test's namespace."""
    spec = KubernetesSpec(namespace=jobs.name, context=CONTEXT)
    environ = {"KUBECONFIG": str(jobs.kubectl.kubeconfig)}
    with KubernetesCluster(spec, environ=environ) as cluster:
        yield cluster


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A workspace with a program, a module and a wheel."""
    folder = tmp_path / "code"
    (folder / "wheels").mkdir(parents=True)
    (folder / "module_of_mine.py").write_text("TELL = 'mine'\n")
    (folder / "train.py").write_text(
        "import os, tiny, module_of_mine as m\n"
        f"print(tiny.TELL, m.TELL, os.path.samefile('.', {WORKSPACE!r}))\n"
    )
    info = "tiny-1.0.dist-info"
    files = {
        "tiny.py": "TELL = 'tiny'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "wheels" / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"]))
    return folder


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


def look_around() -> dict[str, Any]:
    import fray  # noqa: PLC0415
    from fray.job import create_job_ctx  # noqa: PLC0415

    with create_job_ctx("pool", max_workers=1) as ctx:
        doubled = ctx.get(ctx.run(lambda number: number * 2, 21))
    return {"fray": fray.__file__, "at home": Path.cwd().samefile(WORKSPACE), "doubled": doubled}


def test_an_image_with_python_and_without_fray_runs_a_callable(
    cluster: KubernetesCluster, code: Path
) -> None:
    environment = create_environment(workspace=code, env_vars=WITHOUT_FRAY)
    entrypoint = Entrypoint.from_callable(look_around)
    job = cluster.launch(JobRequest("bare", entrypoint, SMALL, environment=environment))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result() == {
        "fray": "/var/run/fray/runtime/fray/__init__.py",
        "at home": True,
        "doubled": 42,
    }


def test_an_images_own_fray_is_the_one_that_a_callable_finds(cluster: KubernetesCluster, code: Path) -> None:
    environment = create_environment(workspace=code)
    entrypoint = Entrypoint.from_callable(look_around)
    job = cluster.launch(JobRequest("own", entrypoint, SMALL, environment=environment))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(job)
    assert outcome is not None
    assert outcome.result()["fray"].startswith("/opt/fray/lib/")


def test_a_program_finds_its_workspace_and_the_packages_in_it(cluster: KubernetesCluster, code: Path) -> None:
    environment = create_environment(
        workspace=code,
        pip_packages=["./wheels/tiny-1.0-py3-none-any.whl"],
        env_vars=OFFLINE,
        setup=["python3 -c 'import tiny'", "echo set up in $PWD"],
    )
    entrypoint = Entrypoint.from_command(["python3", "train.py"])
    job = cluster.launch(JobRequest("packages", entrypoint, SMALL, environment=environment))
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    lines = texts(cluster.logs(job))
    assert lines[-2:] == [
        f"set up in {WORKSPACE}",
        "tiny mine True",
    ]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (OFFLINE, "no-such-package was not found"),
        (OFFLINE | WITHOUT_FRAY, "let the image's user own its Python environment"),
    ],
    ids=["unknown package", "image that can't be written to"],
)
def test_packages_that_cant_be_installed_are_told_as_such(
    cluster: KubernetesCluster, code: Path, variables: dict[str, str], told: str
) -> None:
    environment = create_environment(workspace=code, pip_packages=["no-such-package"], env_vars=variables)
    entrypoint = Entrypoint.from_command(["python3", "train.py"])
    job = cluster.launch(JobRequest("missing", entrypoint, SMALL, environment=environment))
    info = cluster.wait(job, timeout=PATIENCE)
    assert (info.status, info.reason) == (JobStatus.FAILED, "PackagesNotInstalled"), info
    assert info.error_message is not None
    assert told in info.error_message


def test_a_workspace_of_another_digest_is_not_unpacked(jobs: JobNamespace) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "code"}}
    jobs.kubectl.apply({**secret, "stringData": {"code.tar.gz": "something else"}})
    workspace = {"secretName": "code", "sha256": "ab" * 32}
    status = jobs.run(build_job("changed", ["true"], environment={"workspace": workspace}))
    assert (status["phase"], status["reason"]) == ("Failed", "WorkspaceInvalid"), status
    (attempt,) = status["attempts"]
    assert attempt["exitCode"] == 112
    assert "nothing of it was unpacked" in "".join(attempt["logTail"])
