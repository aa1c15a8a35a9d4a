"""The behaviour suite of contexts, run by a job: every actor in it is a FrayActor with a pod of its own."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace
from fray.cluster import Entrypoint, JobRequest, ResourceConfig, create_environment
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.plan.command import CACHE_MOUNT

ROOT = Path(__file__).parents[1]
SUITE = ("test_actors.py", "test_actors_of_jobs.py", "test_current_actor.py", "test_kill.py")
SOURCES = (
    *("tests/behaviour", "tests/local_ray.py", "tests/free_ports.py", "pyproject.toml"),
    *("e2e/__init__.py", *(f"e2e/cluster/{name}.py" for name in ("__init__", "command", "errors"))),
)
"""The suite, what it imports, and how pytest is to run it."""
PACKAGES = ("pytest", "pytest-timeout", "pluggy", "iniconfig", "packaging", "pygments")
"""What runs it, and isn't in the runtime image."""
SMALL = ResourceConfig(cpu=0.2, ram="512Mi", disk="100Mi")
CLAIM = "shared"
SHARES = 3
"""Jobs that run the suite at once."""
LEAST = 35
"""So many tests at least are for such actors."""
PATIENCE = 1500.0
"""Four minutes of work for two processors that do nothing else."""


@pytest.fixture
def shared(jobs: JobNamespace, layout: Layout) -> Iterator[str]:
    """A claim of a directory that all pods see, as gates and notes of the suite need it: one of a node."""
    host = layout.hosts[0].name
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": jobs.name}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": jobs.name},
        "spec": {
            **spec,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}},
    }
    jobs.kubectl("create", "--filename=-", stdin=json.dumps(volume))
    jobs.kubectl.apply(claim)
    yield CLAIM
    jobs.kubectl("delete", "persistentvolume", jobs.name, "--wait=false")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The suite, which goes to the pods of its actors too: arguments of calls are read there."""
    folder = tmp_path / "workspace"
    for name in SOURCES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return folder


@pytest.fixture
def packages() -> bytes:
    """What runs the suite, as a tar: only the job's own process needs it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in PACKAGES:
            for file in metadata.distribution(name).files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    tar.add(str(file.locate()), str(file))
    return packed.getvalue()


def run_suite(packages: bytes, shared: str, share: int) -> tuple[int, str]:
    """Run a share of the suite, as the process of a job; return the exit code of pytest, and what it says.

    `shared` is a directory that all pods see.
    """
    folder = tempfile.mkdtemp()
    with tarfile.open(fileobj=io.BytesIO(packages)) as tar:
        tar.extractall(folder)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    files = [f"tests/behaviour/{name}" for name in SUITE]
    run = partial(
        subprocess.run,
        env={**os.environ, "PYTHONPATH": folder}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    listed: str = run([*words, "--collect-only", *files]).stdout
    tests = [line for line in listed.splitlines() if "::" in line][share::SHARES] or files
    told = run([*words, f"--basetemp={shared}", "--durations=5", *tests])
    shutil.rmtree(shared, ignore_errors=True)
    return told.returncode, told.stdout


def test_actors_of_jobs_pass_the_behaviour_suite(
    jobs: JobNamespace, shared: str, workspace: Path, packages: bytes, progress: Callable[[str], None]
) -> None:
    """In several jobs at once, since each actor waits seconds for its pod."""
    environment = create_environment(workspace, cache_volume=shared)
    spec = KubernetesSpec(namespace=jobs.name, context=CONTEXT)
    with KubernetesCluster(spec, environ={"KUBECONFIG": str(jobs.kubectl.kubeconfig)}) as cluster:
        launched = []
        for share in range(SHARES):
            arguments = [packages, f"{CACHE_MOUNT}/{jobs.name}-{share}", share]
            entrypoint = Entrypoint.from_callable(run_suite, arguments)
            launched.append(cluster.launch(JobRequest(f"suite-{share}", entrypoint, SMALL, environment)))
        cluster.wait(launched, raise_on_failure=True, timeout=PATIENCE)
        outcomes = [cluster.outcome(job) for job in launched]
    passed = 0
    for outcome in outcomes:
        assert outcome is not None
        code, told = outcome.result()
        progress(told)
        ended = re.search(r"^(\d+) passed in ", told, re.MULTILINE)  # and none was skipped
        assert code == 0, told
        assert ended is not None, told
        passed += int(ended[1])
    assert passed >= LEAST
