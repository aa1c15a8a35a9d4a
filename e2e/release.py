"""Fray installed in the test cluster by its own chart: the values that tests need, and helm's commands.

What is in the chart is `charts/fray`; what an installation must be able to do, the tests say.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.command import run
from e2e.cluster.errors import CommandError
from e2e.kubectl import Kubectl

__all__ = ["CHART", "OPERATOR", "SYSTEM", "Helm", "Release"]

CHART = Path(__file__).parents[1] / "charts" / "fray"
SYSTEM = "fray-system"
"""Namespace of the cluster-wide installation."""
OPERATOR = "app.kubernetes.io/name=fray-operator"
"""Label of the operator's pods."""
HELM_SECONDS = 180.0

_TEST_VALUES = (
    # The nodes have no metadata server, and nobody wants to wait ten seconds between two attempts, nor a
    # minute for hosts on a node that is silent.
    "--set=metadataServer=false",
    "--set=backoff.seconds=1",
    "--set=settleSeconds=2",
    "--set=unreachableSeconds=10",
    "--set=kueue.elasticJobs=true",
)


@dataclass(frozen=True)
class Helm:
    """Runs helm with a kubeconfig; `home` is a folder for what it keeps."""

    program: Path
    kubeconfig: Path
    home: Path

    def __call__(self, *words: str) -> str:
        """Standard output of a command. Raises CommandError."""
        environment = os.environ | {
            f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")
        }
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *words]
        return run(command, environment=environment, timeout=HELM_SECONDS + 60)


@dataclass(frozen=True)
class Release:
    """One installation of the chart: `name` in `namespace`, with `values` on top of those of all tests."""

    helm: Helm
    kubectl: Kubectl
    values: Sequence[str] = ()
    name: str = "fray"
    namespace: str = SYSTEM

    @property
    def deployment(self) -> str:
        """Name of the operator's Deployment, Roles and account."""
        return f"{self.name}-operator"

    def install(self, *more: str) -> str:
        """Install or upgrade, and wait until the operator is ready; returns what helm says.

        Raises CommandError.
        """
        return self.helm(
            *("upgrade", "--install", self.name, str(CHART), f"--namespace={self.namespace}"),
            *("--wait", f"--timeout={HELM_SECONDS:.0f}s", *_TEST_VALUES, *self.values, *more),
        )

    def uninstall(self) -> None:
        """Remove it, and wait until its pods are gone; harmless when it is not there."""
        self.helm(
            *("uninstall", self.name, f"--namespace={self.namespace}", "--ignore-not-found"),
            *("--wait", f"--timeout={HELM_SECONDS:.0f}s"),
        )
        self.kubectl.within(self.namespace).wait("pods", "delete", seconds=180, selector=OPERATOR)

    def render(self, template: str, *more: str) -> str:
        """One file of the chart, rendered. Raises CommandError."""
        return self.helm(
            *("template", self.name, str(CHART), f"--namespace={self.namespace}"),
            *(f"--show-only=templates/{template}", *more),
        )

    def is_ready(self) -> bool:
        """Whether all replicas of the operator are ready."""
        try:
            found = self.kubectl.within(self.namespace).get("deployment", self.deployment)
        except CommandError:
            return False
        status = found.get("status", {})
        wanted = found["spec"]["replicas"]
        # Of this very generation: right after an upgrade the numbers are still about the pods before.
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
        return wanted > 0 and current and counts == [wanted] * 3
