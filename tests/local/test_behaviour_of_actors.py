"""The behaviour suite of contexts, run by a job of this machine: every actor in it is a FrayActor."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fray.cluster import Entrypoint, JobRequest, LocalCluster, create_environment

ROOT = Path(__file__).parents[2]
SUITE = ("test_actors.py", "test_actors_of_jobs.py", "test_current_actor.py", "test_kill.py")
LEAST = 35
"""So many tests at least are for such actors."""


@pytest.mark.timeout(900)
def test_actors_of_jobs_pass_the_behaviour_suite(cluster: LocalCluster) -> None:
    files = (f"tests/behaviour/{name}" for name in SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files]
    entrypoint = Entrypoint.from_command(command)
    job = cluster.launch(JobRequest("suite", entrypoint, environment=create_environment(ROOT)))
    cluster.wait(job, raise_on_failure=False)
    told = "\n".join(line.text for line in cluster.logs(job))
    ended = re.search(r"^=+ (\d+) passed in ", told, re.MULTILINE)  # none failed, none was skipped
    assert ended is not None, told
    assert int(ended[1]) >= LEAST, told
