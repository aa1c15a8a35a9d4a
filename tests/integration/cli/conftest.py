"""The command `fray` on a cluster: real processes, a real API server, an operator, an imitated kubelet."""

from __future__ import annotations

import itertools
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from tests.integration.cluster.fake_kubelet import FakeKubelet
from tests.integration.controller.conftest import (
    admin,
    hands,
    kubeconfig,
    new_hands,
    operator,
    settings_for,
)
from tests.integration.controller.hands import Hands, Manifest, now
from tests.local.harness import Fray, Result

__all__ = ["Command", "admin", "hands", "kubeconfig", "new_hands", "operator", "settings_for"]

_numbers = itertools.count(1)


@dataclass
class Command(Fray):
    """The command with a cluster of its own choice."""

    variables: dict[str, str] = field(default_factory=dict)

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return super().environ({**self.variables, **(extra or {})})

    def finish(self, process: subprocess.Popen[bytes], *, stdin: bytes | None = None) -> Result:
        """Wait for the end of a started command.

        Left out are the lines that say that the server took more than 5 s, as one does on a busy machine;
        `test_a_server_that_is_silent` reads them.
        """
        ended = super().finish(process, stdin=stdin)
        lines = ended.err.splitlines(keepends=True)
        return replace(ended, err="".join(line for line in lines if not line.endswith("s; still trying\n")))

    def write(self, name: str, *manifests: Mapping[str, Any]) -> str:
        """Write a file of several documents; return its path."""
        path = self.folder / name
        path.write_text("\n---\n".join(json.dumps(manifest) for manifest in manifests), encoding="utf-8")
        return str(path)


@pytest.fixture
def fray(tmp_path: Path, control_plane: ControlPlane, hands: Hands) -> Iterator[Command]:
    """The command as the administrator uses it, in the test's namespace."""
    command = Command(tmp_path, uuid.uuid4().hex)
    command.variables = {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "FRAY_CLUSTER_SPEC": f"k8s?namespace={hands.namespace}",
    }
    yield command
    left = command.clean_up()
    assert not left, f"the test left processes behind: {left}"


class Machine:
    """What JobSet, the scheduler and a kubelet do for the jobs of a test."""

    def __init__(self, hands: Hands, kubelet: FakeKubelet) -> None:
        self.hands, self.kubelet = hands, kubelet
        # A new node isn't ready, which would be taken for the cause of its pods' failures.
        node = f"/api/v1/nodes/{kubelet.node}"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now(), "lastHeartbeatTime": now()}
        assert hands.api.merge(f"{node}/status", {"status": {"conditions": [ready]}}).ok
        assert hands.api.merge(node, {"spec": {"taints": None}}).ok

    def start(self, jobset_name: str) -> tuple[Manifest, list[str]]:
        """Let the hosts of an attempt run; return its JobSet and its pods' names."""
        jobset = self.hands.await_jobset(jobset_name)
        pods = self.hands.run_all(jobset, node=self.kubelet.node)
        return jobset, [pod["metadata"]["name"] for pod in pods]

    def end(self, jobset: Manifest, code: int = 0) -> None:
        """Let all hosts of an attempt end with an exit code."""
        for pod in self.hands.pods_of(jobset):
            self.kubelet.write(pod["metadata"]["name"], ended=True)
            self.hands.exit(pod, code)
        if code:
            self.hands.fail(jobset)
        else:
            self.hands.complete(jobset)


@pytest.fixture
def machine(api: Api, hands: Hands, tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "kubelet").mkdir()
    with FakeKubelet(api, f"cli-node-{next(_numbers)}", tmp_path / "kubelet") as kubelet:
        yield Machine(hands, kubelet)
