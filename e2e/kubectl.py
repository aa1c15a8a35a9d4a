"""kubectl as users run it, against the test cluster and nothing else.

What a test asks of it is the test's; how long a thing may take is given with each wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.command import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubeconfig import CONTEXT

__all__ = ["REMOVE_SECONDS", "ForeignClusterError", "Kubectl", "require_test_cluster"]

Manifest = Mapping[str, Any]
COMMAND_SECONDS = 60.0
REMOVE_SECONDS = 180.0
"""How long things may take to be gone, where controllers end pods first."""


class ForeignClusterError(ClusterError):
    """A kubeconfig doesn't lead to the test cluster, and tests would delete things there.

    Parameters: `kubeconfig` its path, `context` the context that it would use.
    """

    def __init__(self, kubeconfig: Path, context: str | None) -> None:
        super().__init__(kubeconfig, context)
        self.kubeconfig = kubeconfig
        self.context = context

    def __str__(self) -> str:
        return (
            f"{self.kubeconfig} leads to context {self.context!r}, not {CONTEXT!r}: tests run on a cluster "
            "made for them only; run `python -m e2e.cluster up`"
        )


def require_test_cluster(kubeconfig: Path) -> None:
    """Raise ForeignClusterError unless the file's current context is the test cluster's."""
    content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    context = content.get("current-context")
    if context != CONTEXT:
        raise ForeignClusterError(kubeconfig, context)


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl; `cache` is a folder for what it learns, `namespace` the one that commands are about."""

    program: Path
    kubeconfig: Path
    cache: Path
    namespace: str = "default"

    def within(self, namespace: str) -> Kubectl:
        """The same, about another namespace."""
        return replace(self, namespace=namespace)

    def __call__(self, *words: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        """Standard output of a command. Raises CommandError when it fails or takes longer than `seconds`."""
        return run([*self.command(), *words], stdin=stdin, timeout=seconds)

    def command(self) -> list[str]:
        """The words before those that say what to do."""
        return [
            str(self.program),
            f"--kubeconfig={self.kubeconfig}",
            f"--context={CONTEXT}",
            f"--cache-dir={self.cache}",
            f"--namespace={self.namespace}",
        ]

    def apply(self, *manifests: Manifest) -> str:
        """Apply manifests; returns what kubectl says. Raises CommandError."""
        return self("apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))

    def get(self, *words: str) -> Any:
        """The objects that `kubectl get` finds, parsed. Raises CommandError."""
        return json.loads(self("get", *words, "--output=json"))

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The objects of a list. Raises CommandError."""
        found: list[dict[str, Any]] = self.get(*words)["items"]
        return found

    def wait(self, what: str, until: str, *, seconds: float, selector: str = "") -> None:
        """Wait for what `kubectl wait --for` understands. Raises CommandError after `seconds`."""
        chosen = [f"--selector={selector}"] if selector else []
        words = ("wait", what, *chosen, f"--for={until}", f"--timeout={seconds:.0f}s")
        # A little longer than kubectl itself, so that its own words are the error.
        self(*words, seconds=seconds + COMMAND_SECONDS)

    def remove(self, *words: str) -> None:
        """Delete things and wait until they are gone; harmless when they are not there.

        Raises CommandError.
        """
        timeout = f"--timeout={REMOVE_SECONDS:.0f}s"
        self("delete", *words, "--ignore-not-found", timeout, seconds=REMOVE_SECONDS + COMMAND_SECONDS)
