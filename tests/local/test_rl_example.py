"""The example of reinforcement learning on this machine: a rollout and the curriculum are killed in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from e2e.rl_example import FOLDER, build_command, check_learning
from fray.cluster import LocalCluster
from fray.runtime.pool.objects.directories import list_directories
from fray.runtime.pool.objects.values import INLINE_LIMIT
from tests.pool.driver.processes import kill
from tests.pool.hosts.pools import PATIENCE, wait_until


def find_processes(state: Path, **variables: str) -> Iterator[int]:
    """Processes of this state directory whose environment has these variables."""
    wanted = {f"{name}={value}" for name, value in {"FRAY_STATE_DIR": str(state), **variables}.items()}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environ = (process / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue  # it has ended, or is another user's
        if wanted <= set(environ):
            yield int(process.name)


def maps_an_object(process: int) -> bool:
    """Whether a process reads what is more than travels within a call, in a directory of objects."""
    places = [f"{directory}/" for directory in list_directories()]
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.partition(" ")[0].split("-"))
        if last - first > INLINE_LIMIT and any(place in line for place in places):
            return True
    return False


def test_all_episodes_are_counted_although_a_rollout_and_the_curriculum_are_killed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    environ = {**os.environ, "FRAY_STATE_DIR": str(state), "FRAY_CLUSTER_SPEC": "local"}
    curve = tmp_path / "rewards.svg"
    program = subprocess.Popen(
        build_command(curve), cwd=FOLDER, env=environ, stdout=subprocess.PIPE, text=True
    )
    log = state / "jobs" / "rl" / "logs" / "attempt-1" / "slice-0-host-0.log"
    wait_until(lambda: log.exists() and "round 0" in log.read_text())

    cluster = LocalCluster(environ=environ)
    (curriculum,) = (a for a in cluster.get_actors() if a.spec.name == "rl/curriculum")
    actor = list(find_processes(state, FRAY_ACTOR_NAME=curriculum.metadata.name))
    # It has the weights from the store of the trainer.
    assert any(map(maps_an_object, actor))
    assert kill(actor)
    assert kill(find_processes(state, FRAY_JOB_NAME="rollout-1", FRAY_RANK="0"))

    output, _ = program.communicate(timeout=PATIENCE * 4)
    assert program.returncode == 0
    check_learning(output, curve)
    retries = LocalCluster(environ=environ).get("rollout-1").status.retries
    assert retries is not None
    assert retries.failures_used == 1
