"""What a member tells of itself when nobody calls it, and when it has ended by its own will."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.errors import ActorDiedError
from fray.job import ActorOptions, JobContext
from fray.runtime.pool.host.processes import children
from tests.actors import programs
from tests.actors.cluster import Cluster
from tests.pool.hosts.pools import PATIENCE, wait_until


def test_a_member_is_idle_until_it_is_called_and_again_after_that(
    cluster: Cluster, context: JobContext
) -> None:
    options = ActorOptions(max_concurrency=2)
    counter = context.create_actor(programs.Counter, name="counter", idle_timeout=0.7, options=options)
    assert cluster.actor("counter")["spec"]["idleSeconds"] == 1
    cluster.start_pod("counter", FRAY_ACTOR_IDLE_SECONDS="1").await_ready()
    wait_until(lambda: cluster.record("counter").get("idle") == "true")
    blocked = counter.block.remote()
    # Asking whether it lives isn't using it; a call that takes its time is.
    wait_until(lambda: cluster.record("counter")["idle"] == "false")
    counter.release.remote()
    context.get(blocked, timeout=PATIENCE)
    wait_until(lambda: cluster.record("counter")["idle"] == "true")
    assert cluster.record("counter")["restarts"] == "0"


def test_one_that_has_ended_itself_is_not_started_again_and_its_name_is_free(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    group = context.create_actor_group(programs.Pupil, tmp_path / "told", name="pupils", count=1)
    pod = cluster.start_pod("pupils")
    pod.await_ready()
    (pupil,) = group.handles
    assert context.get(pupil.graduate.remote(), timeout=PATIENCE) == "bye"
    wait_until(lambda: cluster.record("pupils")["ended"] != "")
    assert (tmp_path / "told").exists()
    assert cluster.record("pupils")["restarts"] == "0"
    wait_until(lambda: children(pod.process.pid) == [])
    assert not pod.is_ready
    with pytest.raises(ActorDiedError, match="it has ended itself"):
        context.get(pupil.pid.remote(), timeout=PATIENCE)

    # Nor is it in a pod that takes the place of this one.
    first = cluster.record("pupils")["podUid"]
    pod.kill()
    cluster.start_pod("pupils")
    wait_until(lambda: cluster.record("pupils")["podUid"] != first)
    assert (cluster.record("pupils")["startNumber"], cluster.record("pupils")["ended"] != "") == ("0", True)
    again = context.create_actor_group(programs.Pupil, tmp_path / "more", name="pupils", count=1)
    cluster.start_pod("pupils")
    assert context.get(again.handles[0].myself.remote(), timeout=PATIENCE) == again.handles[0]
