"""What programs of earlier APIs ask for is taken by a real API server."""

from __future__ import annotations

from fray.cluster import ClusterContext, JobRequest, ResourceConfig, TpuConfig, create_environment
from fray.cluster.kubernetes import KubernetesCluster
from fray.types import RuntimeEnv
from tests.integration.cluster.jobs import decoded, finish, secrets_of
from tests.integration.frayjobs import FrayJobs


def test_a_tpu_job_of_the_first_cluster_api(cluster: KubernetesCluster, frayjobs: FrayJobs) -> None:
    tpu_request = JobRequest(
        name="tpu-training",
        entrypoint="train",
        resources=ResourceConfig(
            cpu=96,
            ram="512g",
            device=TpuConfig(type="v5e-16", count=8),
        ),
        environment=create_environment(
            extra_dependency_groups=["tpu"],
            env_vars={"WANDB_API_KEY": "your-key"},
        ),
    )
    job_id = cluster.launch(tpu_request)
    stored = frayjobs.api.get(frayjobs.path(job_id)).body["spec"]
    assert stored["entrypoint"] == {"command": ["python3", "-m", "train"]}
    assert stored["resources"]["tpu"]["type"] == "v5e-16"
    assert stored["environment"]["extras"] == ["tpu"]
    (secret,) = secrets_of(frayjobs)
    assert decoded(secret)["WANDB_API_KEY"] == b"your-key"


def test_a_cluster_context(cluster: KubernetesCluster, frayjobs: FrayJobs) -> None:
    context = ClusterContext(cluster)
    command = context.create_job("python train.py --batch-size 32", RuntimeEnv(container_image="trainer:v1"))
    function = context.create_job(lambda ctx: ctx.get(ctx.put(1)), RuntimeEnv())
    stored = frayjobs.api.get(frayjobs.path(command)).body["spec"]
    assert stored["entrypoint"] == {"command": ["sh", "-c", "python train.py --batch-size 32"]}
    assert stored["environment"]["image"] == "trainer:v1"
    assert {(job["id"], job.status) for job in context.list_jobs()} == {
        (command, "PENDING"),
        (function, "PENDING"),
    }
    finish(frayjobs, command, "Stopped")
    context.delete_job(command)
    assert {job.id: job["status"] for job in context.list_jobs()}[command] == "STOPPED"
