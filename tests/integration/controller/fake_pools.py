"""The nodes of the fake GKE's pools: objects for which KWOK answers, with a real scheduler for the pods.

The scheduler takes only pods that name it, so that it leaves those of other tests alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import build, module_source
from e2e.cluster.fake_nodes import build_fake_node, build_kwok_command, build_kwok_config
from e2e.cluster.layout import build_tpu_host, parse_taint
from tests.gke.server import FakeGke

__all__ = ["SCHEDULER", "PoolNodes", "run_nodes"]

SCHEDULER = "test-scheduler"


class PoolNodes:
    """Two hosts of a v5p-16 slice for each running pool, which come and go with it."""

    def __init__(self, api: Api, gke: FakeGke) -> None:
        self._api, self._gke = api, gke
        self._there: set[str] = set()

    def follow(self) -> None:
        """Make the nodes of new pools, and remove those of pools that are gone."""
        running = {name for name, pool in self._gke.pools.items() if pool.status.name == "RUNNING"}
        for pool in running - self._there:
            for host in (build_tpu_host(0, pool, index) for index in range(2)):
                assert self._api.post("/api/v1/nodes", build_fake_node(host)).ok
                # Admission taints new nodes until a controller has seen them ready, and no controller runs.
                taints = {"spec": {"taints": [parse_taint(taint) for taint in host.taints]}}
                assert self._api.merge(f"/api/v1/nodes/{host.name}", taints).ok
        for pool in self._there - running:
            self._remove(pool)
        self._there = running

    def remove_all(self) -> None:
        """Leave no node behind."""
        for pool in self._there:
            self._remove(pool)

    def _remove(self, pool: str) -> None:
        for index in range(2):
            assert self._api.delete(f"/api/v1/nodes/{pool}-{index}").ok


@contextmanager
def run_nodes(api: Api, gke: FakeGke, kubeconfig: Path, folder: Path) -> Iterator[PoolNodes]:
    """Run KWOK and a scheduler, and have nodes follow the pools of a fake GKE."""
    binaries = build(["kube-scheduler", "kwok"])
    kwok, scheduler = folder / "kwok.yaml", folder / "scheduler.yaml"
    kwok.write_text(build_kwok_config(module_source("kwok") / "kustomize" / "stage"))
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": SCHEDULER}],
    }
    scheduler.write_text(yaml.safe_dump(profile))
    commands = {
        "kwok": build_kwok_command(str(binaries["kwok"]), kubeconfig=kubeconfig, config=kwok),
        "scheduler": [
            str(binaries["kube-scheduler"]),
            f"--config={scheduler}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--secure-port=0",
        ],
    }
    nodes, running = PoolNodes(api, gke), []
    gke.on_change = nodes.follow
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                running.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        yield nodes
    finally:
        gke.on_change = lambda: None
        nodes.remove_all()
        for process in running:
            process.kill()
            process.wait()
