"""The example of reinforcement learning on the cluster: a rollout is evicted, the curriculum deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cluster.command import await_condition
from e2e.job_namespace import JobNamespace
from e2e.rl_example import FOLDER, build_command, check_learning
from e2e.test_actors import list_pods
from e2e.test_actors_of_jobs import connect
from tools.images import project_version

LEARN_SECONDS = 300.0


def test_all_episodes_are_counted_although_a_rollout_and_the_curriculum_are_lost(
    jobs: JobNamespace, tmp_path: Path
) -> None:
    curve = tmp_path / "rewards.svg"
    _, environ = jobs.fray()
    # With NumPy.
    environ["FRAY_CLUSTER_SPEC"] += f"&image=fray-digits:{project_version()}"
    with (
        connect(jobs) as cluster,
        subprocess.Popen(
            build_command(curve), cwd=FOLDER, env=environ, stdout=subprocess.PIPE, text=True
        ) as program,
    ):
        try:
            jobs.await_job("rl", "create")
            jobs.await_job("rl", "condition=Running")
            await_condition(
                "the first round is over",
                lambda: "round 0" in "".join(jobs.logs("rl")),
                timeout=LEARN_SECONDS,
                details=jobs.describe,
            )
            curriculum = cluster.find_actor("rl/curriculum").metadata.name
            (pod,) = list_pods(jobs, curriculum)
            jobs.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
            jobs.evict(jobs.pods("rollout-1")[0]["metadata"]["name"])
            output, _ = program.communicate(timeout=LEARN_SECONDS)
        finally:
            program.kill()
        assert program.returncode == 0
        check_learning(output, curve)
        attempts = jobs.job("rollout-1")["status"]["attempts"]
        assert [attempt["verdict"] for attempt in attempts] == ["Preemption", "Success"]
