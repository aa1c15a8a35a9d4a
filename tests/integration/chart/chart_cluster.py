"""An API server that the chart is installed into, by helm and with the rights of the user who installs.

No controllers run, so nothing of an installation starts by itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import CONTROL_PLANE, build, module_source
from e2e.cluster.controlplane import ControlPlane
from tests.integration.frayjobs import CRD_COLLECTION, await_served

CHART = Path(__file__).parents[3] / "charts" / "fray"
CRD = f"{CRD_COLLECTION}/frayjobs.fray.dev"
JOBSETS = f"{CRD_COLLECTION}/jobsets.jobset.x-k8s.io"
JOBSET_CRD = "charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


class HelmError(Exception):
    """Helm failed; the text is what it said."""


class Cluster:
    """An API server with JobSet's CRD and helm to install into it."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self.control_plane, self._folder = control_plane, folder
        self.api: Api = control_plane.api()

    def helm(self, *arguments: str, user: str = "") -> str:
        """Standard output of helm, run as administrator or as `user`. Raises HelmError."""
        command = [str(build(("helm",))["helm"]), *arguments, f"--kubeconfig={self.control_plane.kubeconfig}"]
        command += [f"--kube-as-user={user}"] if user else []
        environment = os.environ | {"HOME": str(self._folder)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            raise HelmError(done.stderr)
        return done.stdout

    def create_namespace(self, name: str, **labels: str) -> str:
        """Create a namespace and return its name."""
        created = self.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert created.status == 201, created.body
        return name

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, as its pods would get one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.api.post(path, {"spec": {}})
        assert answer.status == 201, answer.body
        token: str = answer.body["status"]["token"]
        return token

    def account(self, namespace: str, name: str) -> Api:
        """A client with the rights of a service account."""
        return self.control_plane.api(token=self.token(namespace, name))

    def bind(self, namespace: str, user: str, rules: list[dict[str, Any]]) -> None:
        """Give a user rights in one namespace."""
        role = {"metadata": {"name": "installer"}, "rules": rules}
        binding = {
            "metadata": {"name": "installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "installer"},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        for collection, body in (("roles", role), ("rolebindings", binding)):
            created = self.api.post(f"{ROLES}/namespaces/{namespace}/{collection}", body)
            assert created.status == 201, created.body


@contextmanager
def bare_cluster(folder: Path) -> Iterator[Cluster]:
    with ControlPlane(build(CONTROL_PLANE)) as control_plane:
        yield Cluster(control_plane, folder)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    with bare_cluster(folder) as cluster:
        jobset = yaml.safe_load((module_source("jobset") / JOBSET_CRD).read_text(encoding="utf-8"))
        created = cluster.api.post(CRD_COLLECTION, jobset)
        assert created.status == 201, created.body
        await_served(cluster.api, JOBSETS)
        yield cluster


def install(cluster: Cluster) -> None:
    """Install the chart cluster-wide, with the network policy that isn't there by default."""
    notes = cluster.helm(
        "install", "fray", str(CHART), "--namespace=fray-system", "--set=networkPolicy.enabled=true"
    )
    assert "NEXT" not in notes
    await_served(cluster.api, CRD)


def allowed(client: Api, verb: str, resource: str, *, namespace: str = "", name: str = "") -> bool:
    """Whether the API server would let the client do this."""
    plain, _, subresource = resource.rpartition("/")[2].partition(":")
    group = resource.rpartition("/")[0]
    attributes = {"group": group, "resource": plain, "subresource": subresource, "verb": verb}
    review = {"spec": {"resourceAttributes": {**attributes, "namespace": namespace, "name": name}}}
    answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer.status == 201, answer.body
    return bool(answer.body["status"]["allowed"])


def frayjob(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": name},
        "spec": {"entrypoint": {"command": ["true"]}},
    }


def jobs_in(namespace: str) -> str:
    return f"/apis/fray.dev/v1alpha1/namespaces/{namespace}/frayjobs"
