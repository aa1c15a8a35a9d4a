"""Endpoints of actors on this machine: found by the jobs that may know them, gone with their actor."""

from __future__ import annotations

from pathlib import Path

from fray.cluster import LocalCluster
from fray.errors import EndpointNotFoundError
from fray.job import ActorHandle, get_default_job_ctx, lookup_endpoint
from tests.actors import programs
from tests.local.harness import run_root
from tests.pool.hosts.pools import PATIENCE


def find(name: str) -> str:
    """Return the address of an endpoint; empty: nobody finds one."""
    try:
        return lookup_endpoint(name).address
    except EndpointNotFoundError:
        return ""


def serve_and_kill() -> list[str]:
    """A root job: what its actor registers is there until that is deleted, then what a detached one did."""
    ctx = get_default_job_ctx()
    ctx.get_actor("shared").register.remote("metrics", "127.0.0.1:2").result(PATIENCE)
    own: ActorHandle[programs.Server] = ctx.create_actor(
        programs.Server, "metrics", "127.0.0.1:1", name="server"
    )
    found = [own.look_up.remote("metrics").result(PATIENCE), find("metrics")]
    ctx.kill(own)
    return [*found, find("metrics")]


def test_what_actors_register_is_gone_with_them(cluster: LocalCluster, tmp_path: Path) -> None:
    shared = cluster.create_actor(programs.Server, "metrics", "127.0.0.1:0", name="shared")
    own = "127.0.0.1:1"
    assert run_root(cluster, serve_and_kill, tmp_path) == [own, own, "127.0.0.1:2"]
    assert shared.look_up.remote("metrics").result(PATIENCE) == "127.0.0.1:2"
    cluster.delete_actor(cluster.find_actor("shared"))
    assert run_root(cluster, lambda: find("metrics"), tmp_path) == ""
