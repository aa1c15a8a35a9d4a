"""What a case of bad input is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml
from typer.testing import CliRunner

from fray.cli.app import app
from fray.cluster import Cluster, Entrypoint, JobId, JobRequest, create_environment
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import FrayError
from fray.kube.api import Manifest
from fray.kube.resources import Resource
from fray.vocabulary import API_VERSION, FRAYJOB_KIND

__all__ = ["EVERYWHERE", "KUBERNETES", "LOCAL", "PICKLING", "Case", "Scene"]

LOCAL: Final = ("local", "threads", "isolated")
KUBERNETES: Final = ("kubernetes",)
EVERYWHERE: Final = (*LOCAL, *KUBERNETES, "ray")
PICKLING: Final = ("local", "isolated", "kubernetes", "ray")


@dataclass(frozen=True)
class Scene:
    """What cases find: the backend, variables that name it, a job of it that has ended, and a folder."""

    cluster: Cluster
    variables: Mapping[str, str]
    ended: JobId
    folder: Path

    def launch(self, name: str = "bad", entrypoint: Any = None, **parts: Any) -> JobId:
        """Launch what is right but for what is said."""
        entrypoint = Entrypoint.from_command(["true"]) if entrypoint is None else entrypoint
        return self.cluster.launch(JobRequest(name, entrypoint, **parts))

    def call(self, function: Any, *args: Any, **kwargs: Any) -> JobId:
        """Launch a call."""
        return self.launch(entrypoint=Entrypoint.from_callable(function, args, kwargs))

    def run(self, *words: str) -> JobId:
        """Launch a program."""
        return self.launch(entrypoint=Entrypoint.from_command(words))

    def within(self, **parts: Any) -> JobId:
        """Launch in an environment."""
        source = {} if "workspace" in parts else {"docker_image": "image"}
        return self.launch(environment=create_environment(**source, **parts))

    def elsewhere(
        self,
        edit: Callable[[dict[str, Any]], object] = id,
        *,
        entrypoint: Any = None,
        **spec: Any,
    ) -> JobId:
        """Launch with another cluster spec, and with the kubeconfig after it was edited."""
        assert isinstance(self.cluster.spec, KubernetesSpec)
        config = yaml.safe_load(Path(self.variables["KUBECONFIG"]).read_text(encoding="utf-8"))
        edit(config)
        environ = {**self.variables, "KUBECONFIG": self.write(yaml.safe_dump(config), "kubeconfig")}
        with KubernetesCluster(replace(self.cluster.spec, **spec), environ=environ) as cluster:
            return replace(self, cluster=cluster).launch(entrypoint=entrypoint)

    def fray(self, *words: str) -> object:
        """Run the command line; the error that it would print is raised."""
        return CliRunner().invoke(app, words, env=dict(self.variables), catch_exceptions=False).output

    def write(self, content: str, name: str = "job.yaml") -> str:
        """Write a file; return its path."""
        path = self.folder / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    def write_job(self, *, kind: str = FRAYJOB_KIND, name: str = "bad", count: int = 1, **spec: Any) -> str:
        """Write a job file, with a job so many times; return its path."""
        spec = {"entrypoint": {"command": ["true"]}, **spec}
        job = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.write(yaml.safe_dump_all([job] * count))

    def fill(self, *, size: int) -> str:
        """Make a workspace with a file of so many bytes; return it."""
        with (self.folder / "weights.bin").open("wb") as file:
            file.truncate(size)
        return str(self.folder)

    def link(self, target: str) -> str:
        """Make a workspace with a link; return it."""
        (self.folder / "data").symlink_to(target)
        return str(self.folder)


@dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
        id: What is bad, in few words.
        ask: Asks the backend for it.
        error: What is raised.
        told: A part of its text, which names what was wrong.
        on: The backends that refuse it. Others do it, or have no such thing.
        beside: Objects of a namespace that make the server refuse it.
    """

    id: str
    ask: Callable[[Scene], object]
    error: type[FrayError]
    told: str
    on: tuple[str, ...] = EVERYWHERE
    beside: Callable[[str], Sequence[tuple[Resource, Manifest]]] | None = field(default=None, repr=False)
