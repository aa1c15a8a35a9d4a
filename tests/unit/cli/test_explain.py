"""`fray explain` prints the FrayJob and the JobSet that a cluster takes, and a reason for each part."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fray.cli.app import app
from fray.cli.explain import ExplainFormat, explain_job
from fray.cli.requested_job import load_job
from fray.cluster.local_cluster import LocalCluster
from fray.errors import InvalidJobError, JobNotFoundError, RequestError, UnsupportedFeatureError
from fray.payload.staging import FsspecStorage
from fray.plan.gang_placement import NOTHING_READ, ClusterTopology, QueueFlavor
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.wire.validation import validate_manifest
from tests.unit.cluster.local_jobs import frayjob

JOB = frayjob(
    tpu="v5p-16",
    replicas=2,
    placement={"spot": "Required"},
    environment={"env": [{"name": "TEXT", "value": "two\nlines # and: more"}]},
)


def test_every_form_holds_the_same_manifests() -> None:
    both = [JOB.to_manifest(), build_attempt(JOB, attempt=1, settings=PlanSettings()).jobset]
    assert list(yaml.safe_load_all(explain_job(JOB, ExplainFormat.TEXT, secrets=["a", "b"]))) == both
    assert list(yaml.safe_load_all(explain_job(JOB, ExplainFormat.YAML))) == both
    listed = json.loads(explain_job(JOB, ExplainFormat.JSON))
    assert (listed["kind"], listed["items"]) == ("List", both)


def test_every_selector_and_variable_has_its_reason() -> None:
    text = explain_job(JOB, ExplainFormat.TEXT)
    manifest = build_attempt(JOB, attempt=1, settings=PlanSettings()).jobset
    template = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for label in template["nodeSelector"]:
        assert f"#   node selector {label} = " in text
    ours = [entry["name"] for entry in template["containers"][0]["env"] if entry["name"] != "TEXT"]
    for name in ours:
        assert f"#   env {name} = " in text
    assert "<https://" in text


def test_what_is_not_done_as_asked_is_said() -> None:
    job = frayjob(resources={"tpu": {"type": "v5p-8"}, "cpu": "10000"})
    assert "# Not done as asked, or not known:\n#   cpu 10000 is more than" in explain_job(
        job, ExplainFormat.TEXT
    )


@pytest.mark.parametrize(
    ("topology", "who", "why"),
    [
        (NOTHING_READ, "JobSet", "no topology of a queue keeps slices together"),
        (
            ClusterTopology((QueueFlavor("v5p", levels=("cloud.google.com/gke-nodepool",)),)),
            "Kueue",
            "the topology of the queue's flavors has the level of node pools",
        ),
    ],
)
def test_who_keeps_a_gang_together_is_told_and_why(topology: ClusterTopology, who: str, why: str) -> None:
    job = frayjob(tpu="v5p-16", queue={"name": "team"})
    text = explain_job(job, ExplainFormat.TEXT, topology=topology)
    assert f"#   gang kept together by = {who}\n#       {why}" in text


def test_without_a_cluster_it_says_what_was_not_asked_where_that_matters() -> None:
    text = explain_job(frayjob(tpu="v5p-16", queue={"name": "team"}), ExplainFormat.TEXT, topology=None)
    assert "#   no cluster was asked whether its queues have topologies" in text
    assert "#       no topology of a queue is known that keeps slices together" in text
    assert "no cluster was asked" not in explain_job(frayjob(tpu="v5p-8"), ExplainFormat.TEXT, topology=None)


def test_slices_formed_on_demand_are_told() -> None:
    text = explain_job(frayjob(tpu="tpu7x-4x4x4"), ExplainFormat.TEXT, topology=ClusterTopology(cubes=True))
    assert "#   gang kept together by = dynamic slices\n" in text
    assert "#   nodes = 1 dynamic slice of 16 nodes with tpu7x 4x4x4\n" in text


def test_what_could_not_be_read_of_the_cluster_is_told() -> None:
    topology = ClusterTopology(unread=("whether queue team has a topology can't be read: no",))
    assert "#   whether queue team has a topology can't" in explain_job(
        JOB, ExplainFormat.TEXT, topology=topology
    )


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"replicas": 2, "gpu": ("nvidia-h100-80gb", 8)}, ["GPUDirect-TCPX between"]),
        ({"replicas": 2, "gpu": ("nvidia-h100-mega-80gb", 8)}, ["GPUDirect-TCPXO"]),
        ({"replicas": 2, "gpu": ("nvidia-h200-141gb", 8)}, ["GPUDirect RDMA"]),
        ({"replicas": 2, "gpu": ("nvidia-b200", 8)}, ["GPUDirect RDMA"]),
        ({"replicas": 18, "gpu": ("nvidia-gb200", 4)}, ["GPUDirect RDMA", "NVLink between hosts"]),
        ({"replicas": 18, "gpu": ("nvidia-gb300", 4)}, ["GPUDirect RDMA", "NVLink between hosts"]),
        ({"replicas": 2, "gpu": ("nvidia-h100-80gb", 1)}, []),
        ({"replicas": 1, "gpu": ("nvidia-b200", 8)}, []),
        ({"replicas": 4, "gpu": ("nvidia-l4", 8)}, []),
        ({"tpu": "tpu7x-2x2x2"}, ["a workload policy of Compute Engine"]),
        ({"tpu": "tpu7x-2x2x1"}, []),
        ({"tpu": "v5p-16"}, []),
        ({}, []),
    ],
)
def test_what_a_job_needs_beside_is_told_with_the_page_that_says_how(
    spec: dict[str, Any], needs: list[str]
) -> None:
    resources: dict[str, Any] = {}
    if "gpu" in spec:
        resources["gpu"] = dict(zip(("type", "count"), spec["gpu"], strict=True))
    if "tpu" in spec:
        resources["tpu"] = {"type": spec["tpu"]}
    job = frayjob(replicas=spec.get("replicas", 1), resources=resources)
    _, told, after = explain_job(job, ExplainFormat.TEXT).partition("# Needed beside it, to be prepared by")
    lines = after.partition("\n#\n")[0].splitlines()[1:]
    assert bool(told) is bool(needs)
    assert len(lines) == 2 * len(needs) if needs else not told
    for need, line, page in zip(needs, lines[::2], lines[1::2], strict=False):
        assert need in line
        assert page.startswith("#       <https://docs.cloud.google.com/")


@pytest.mark.parametrize(
    ("option", "value", "cpu", "memory", "machine"),
    [
        ("--gpu", "H100:8", "187", "1684G", "a3-highgpu-8g"),
        ("--tpu", "v5p-16", "187", "403G", "ct5p-hightpu-4t"),
    ],
)
def test_what_a_host_has_is_asked_for_and_told(
    option: str, value: str, cpu: str, memory: str, machine: str, capfd: pytest.CaptureFixture[str]
) -> None:
    app(["explain", option, value, "--", "python", "train.py"], standalone_mode=False)
    told = capfd.readouterr().out
    assert f"#   request cpu = {cpu}\n#       all that {machine} leaves to pods\n" in told
    assert f"#   request memory = {memory}\n#       all that {machine} leaves to pods\n" in told
    frayjob, _ = yaml.safe_load_all(told)
    assert (frayjob["spec"]["resources"]["cpu"], frayjob["spec"]["resources"]["memory"]) == (cpu, memory)


def test_where_the_size_of_hosts_is_unknown_that_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    app(["explain", "--tpu", "tpu7-8", "--cpu", "8", "--", "python", "train.py"], standalone_mode=False)
    told = capfd.readouterr().out
    assert re.search(
        r"#   request cpu = 8\n#       asked for, or .*: no page tells how large \S+ hosts are\n", told
    )
    assert "#   request memory = 4Gi\n#       asked for, or Fray's default: no page" in told


def test_nodes_that_the_last_attempt_keeps_off_are_told_with_their_reason(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    why = "hosts failed there in attempts 1 and 2: UnexpectedAdmissionError: Pod was rejected"
    avoided = {"node": "node-7", "until": "2026-01-31T13:00:00.000Z", "reason": why}
    manifest = frayjob().to_manifest() | {"status": {"attempt": 3, "avoidedNodes": [avoided]}}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    app(["explain", "-f", str(tmp_path / "job.json")], standalone_mode=False)
    told = capfd.readouterr().out
    assert "attempt 3 is JobSet" in told
    assert (
        "#   node affinity kubernetes.io/hostname = NotIn node-7\n"
        f"#       status.avoidedNodes: node-7 until 2026-01-31T13:00:00.000Z ({why})\n"
    ) in told


def test_a_status_that_cannot_be_read_is_refused() -> None:
    manifest = frayjob().to_manifest() | {"status": {"attempt": "three"}}
    stdin = io.BytesIO(json.dumps(manifest).encode())
    with pytest.raises(InvalidJobError, match=r"status\.attempt: Input should be a valid integer"):
        load_job("-", stdin=stdin, with_status=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a module; the machine's variables name no cluster."""
    (tmp_path / "explained_training.py").write_text("def main(*words):\n    print(words)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRAY_CLUSTER_SPEC", raising=False)
    monkeypatch.delenv("FRAY_JOB_NAME", raising=False)
    monkeypatch.setenv("FRAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def explain(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    app(["explain", *words], standalone_mode=False)
    return capfd.readouterr().out


def test_a_file_is_explained_with_the_directory_that_it_names(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = frayjob().to_manifest()
    manifest["spec"]["environment"] = {"workspace": "."}
    (here / "frayjob.json").write_text(json.dumps(manifest))
    told = explain(capfd, "-f", "frayjob.json")
    assert told.startswith("# With Secrets, which aren't shown: job-workspace-0000000000\n")
    explained, _ = yaml.safe_load_all(told)
    assert explained["spec"]["environment"]["workspace"]["secretName"] == "job-workspace-0000000000"


def test_a_file_is_explained_with_what_the_command_line_says_instead(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = frayjob(replicas=2, retries={"failures": 3}).to_manifest()
    (here / "frayjob.json").write_text(json.dumps(manifest))
    app(["explain", "-f", "frayjob.json", "--retries", "0", "-e", "MODE=fast"], standalone_mode=False)
    told = capfd.readouterr()
    assert told.err == "job: instead of what the file says: retries.failures 0; env MODE\n"
    explained, jobset = yaml.safe_load_all(told.out)
    assert explained["spec"]["retries"]["failures"] == 0
    assert explained["spec"]["environment"]["env"] == [{"name": "MODE", "value": "fast"}]
    assert {"name": "MODE", "value": "fast"} in find_env(jobset)


def find_env(jobset: dict[str, Any]) -> list[dict[str, Any]]:
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    env: list[dict[str, Any]] = template["spec"]["containers"][0]["env"]
    return env


def test_a_file_is_explained_without_a_directory_that_is_not_here(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = frayjob().to_manifest()
    manifest["spec"]["environment"] = {"workspace": "nowhere"}
    (here / "frayjob.json").write_text(json.dumps(manifest))
    app(["explain", "-f", "frayjob.json"], standalone_mode=False)
    told = capfd.readouterr()
    assert told.err == f"job: shown without its workspace: {here}/nowhere isn't here\n"
    explained, _ = yaml.safe_load_all(told.out)
    assert "workspace" not in explained["spec"].get("environment", {})


@pytest.mark.usefixtures("here")
def test_a_program_is_explained_as_fray_run_would_launch_it(capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--tpu", "v5p-16", "--replicas", "2", "-e", "TOKEN=hidden", "-e", "MODE=fast", "--name", "big"]
    told = explain(capfd, *options, "--", "python", "train.py", "-o", "json", "--", "$(HOME)")
    assert told.startswith(
        "# With Secrets, which aren't shown: big-workspace-0000000000, big-env-0000000000\n"
    )
    assert "hidden" not in told
    frayjob, jobset = yaml.safe_load_all(told)
    assert frayjob["kind"] == "FrayJob"
    assert frayjob["metadata"]["name"] == "big"
    assert frayjob["spec"]["entrypoint"]["command"] == ["python", "train.py", "-o", "json", "--", "$$(HOME)"]
    assert (frayjob["spec"]["replicas"], frayjob["spec"]["resources"]["tpu"]) == (2, {"type": "v5p-16"})
    assert {"name": "MODE", "value": "fast"} in frayjob["spec"]["environment"]["env"]
    assert (jobset["kind"], jobset["metadata"]["name"]) == ("JobSet", "big-a1")
    assert build_attempt(validate_manifest(frayjob), attempt=1, settings=PlanSettings()).jobset == jobset


@pytest.mark.usefixtures("here")
def test_disk_spot_queue_and_packages_are_explained(capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--disk", "100g", "--spot", "--queue", "research", "--pip", "numpy", "--pip", "jax>=0.7"]
    frayjob, jobset = yaml.safe_load_all(explain(capfd, *options, "--", "python", "train.py"))
    spec = frayjob["spec"]
    assert spec["resources"]["disk"] == "100Gi"
    assert spec["placement"]["spot"] == "Required"
    assert spec["queue"] == {"name": "research"}
    assert spec["environment"]["pipPackages"] == ["numpy", "jax>=0.7"]
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["requests"]["ephemeral-storage"] == "100Gi"
    assert "cloud.google.com/gke-spot" in str(pod)
    frayjob, _ = yaml.safe_load_all(explain(capfd, "--no-spot", "--", "python", "train.py"))
    assert frayjob["spec"]["placement"] == {"preemptible": False}


@pytest.mark.usefixtures("here")
def test_one_word_behind_dashes_is_a_program_and_not_a_name(capfd: pytest.CaptureFixture[str]) -> None:
    frayjob, _ = yaml.safe_load_all(explain(capfd, "-o", "yaml", "--", "sleep"))
    assert frayjob["spec"]["entrypoint"]["command"] == ["sleep"]


def test_a_function_is_explained_twice_alike_with_the_options_of_its_own(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--cluster", "k8s?namespace=ml&image=img&staging=file:///nowhere/at/all", "-o", "json"]
    told = explain(capfd, *words, "explained_training:main", "--lr", "3")
    assert told == explain(capfd, *words, "explained_training:main", "--lr", "3")
    frayjob, jobset = json.loads(told)["items"]
    callable_entrypoint = frayjob["spec"]["entrypoint"]["callable"]
    assert callable_entrypoint["secretName"] == "explained-training-main-payload-0000000000"
    assert frayjob["metadata"]["namespace"] == jobset["metadata"]["namespace"] == "ml"
    assert frayjob["spec"]["environment"]["image"] == "img"
    assert not (here / "state").exists(), "nothing is launched"


@pytest.mark.usefixtures("here")
def test_what_is_too_large_for_secrets_is_not_staged(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path.cwd() / "weights.bin").write_bytes(random.Random(0).randbytes(9 << 20))

    def fail(*_: object) -> None:
        raise AssertionError("something was staged")

    monkeypatch.setattr(FsspecStorage, "write", fail)
    words = ["--cluster", "k8s?staging=gs://bucket/fray", "-o", "yaml", "--", "true"]
    frayjob, _ = yaml.safe_load_all(explain(capfd, *words))
    assert frayjob["spec"]["environment"]["workspace"]["url"].startswith("gs://bucket/fray/workspaces/")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "names nothing to explain"),
        (["-f", "job.yaml", "train"], "has a file and also 'train'"),
        (["-f", "job.yaml", "--tpu", "v5p-8"], "has a file and also --tpu"),
        (["train", "--tpu", "v5p-8"], "has the name of a job that is there and also --tpu"),
        (["train", "--name", "other"], "has the name of a job that is there and also --name"),
        (["python", "train.py"], "has several names: 'python train.py'"),
        (["job.yaml"], "looks like a file, and not like the name of a job\nUse `fray explain -f FILE`"),
        (["--gpu", "auto", "--", "train"], "GPU type 'auto' is not supported here"),
    ],
)
def test_what_contradicts_itself_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(RequestError, match=re.escape(problem)):
        app(["explain", *words], standalone_mode=False)


@pytest.mark.usefixtures("here")
def test_options_may_follow_the_name_of_a_job() -> None:
    with pytest.raises(JobNotFoundError, match="no job 'train'"):
        app(["explain", "train", "-o", "yaml"], standalone_mode=False)


def test_what_the_server_has_written_is_left_out() -> None:
    metadata = {"name": "train", "labels": {"team": "a"}, "uid": "u", "resourceVersion": "7"}
    manifest = frayjob().to_manifest() | {"metadata": metadata, "status": {"phase": "Running", "attempt": 2}}
    job = load_job("-", stdin=io.BytesIO(json.dumps(manifest).encode()), with_status=True).job
    told, jobset = yaml.safe_load_all(explain_job(job, ExplainFormat.YAML))
    assert told["metadata"] == {"name": "train", "labels": {"team": "a"}}
    assert "status" not in told
    assert jobset["metadata"]["name"] == "train-a2"


def test_a_cluster_without_objects_of_kubernetes_has_no_preview() -> None:
    with pytest.raises(UnsupportedFeatureError, match="no objects of Kubernetes"):
        LocalCluster().preview(frayjob())
