"""GKE asked by Google's own client library: the cluster, its node pools, and the operations on them.

The library takes 71 MB of memory and is an extra of Fray: nothing imports it before `open_client` is called.
What GKE says becomes a `NodePoolError`; what it means is in `answers`.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import yaml

from fray.errors import GkeClusterError, GkeCredentialsError, PackageMissingError
from fray.kube.official_client import config
from fray.nodepools.answers import derive_error
from fray.nodepools.bodies import GkeCluster
from fray.nodepools.existing import (
    Cluster,
    Operation,
    Pool,
    read_cluster,
    read_operation,
    read_pool,
)

if TYPE_CHECKING:
    from google.cloud.container_v1 import ClusterManagerClient

__all__ = ["Gke", "OpenClient", "find_cluster", "open_client"]

KUBECONFIG: Final = "~/.kube/config"
GKE_ENTRY: Final = "gke_"
"""`gcloud container clusters get-credentials` names entries `gke_PROJECT_LOCATION_CLUSTER`."""
CALL_SECONDS: Final = 45.0

OpenClient = Callable[[], "ClusterManagerClient"]


def open_client() -> ClusterManagerClient:
    """Return Google's client with Application Default Credentials; nothing is sent yet.

    Raises:
        PackageMissingError: The extra `gke` isn't installed.
        GkeCredentialsError: There are no credentials.
    """
    try:
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud.container_v1 import ClusterManagerClient
    except ImportError as error:
        raise PackageMissingError("asking GKE", error.name or "google-cloud-container", "gke") from error
    try:
        return ClusterManagerClient()
    except DefaultCredentialsError as error:
        raise GkeCredentialsError(_first_line(error)) from error


def find_cluster(environ: Mapping[str, str], *, context: str | None = None) -> GkeCluster:
    """Return the GKE cluster that the kubeconfig's context leads to, by the name that gcloud gave its entry.

    Renamed contexts are found too: what counts is the entry of the cluster.

    Raises:
        GkeClusterError: There is no kubeconfig, no such context, or it leads to no GKE cluster.
    """
    path = environ.get("KUBECONFIG") or KUBECONFIG
    try:
        contexts, current = config.list_kube_config_contexts(path)
        chosen = current if context is None else {each["name"]: each for each in contexts}.get(context)
        entry = str(chosen["context"]["cluster"]) if chosen is not None else ""
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise GkeClusterError(f"{path} can't be read: {_first_line(error)}") from error
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        # A file of another shape raises what it likes.
        raise GkeClusterError(f"{path} is no kubeconfig: {_first_line(error)}") from error
    if chosen is None:
        raise GkeClusterError(f"the kubeconfig has no context {context!r}")
    parts = entry.split("_")
    if not entry.startswith(GKE_ENTRY) or len(parts) != 4 or not all(parts):
        raise GkeClusterError(
            f"context {chosen['name']!r} leads to {entry!r}, which isn't named as gcloud names clusters"
        )
    return GkeCluster(*parts[1:])


class Gke:
    """One GKE cluster and its node pools. Calls raise `NodePoolError` where GKE refuses them.

    Creating and deleting may be repeated: what was begun already is found, and never begun twice.
    """

    def __init__(self, cluster: GkeCluster, client: ClusterManagerClient) -> None:
        self.cluster = cluster
        self._client = client

    def read_cluster(self) -> Cluster:
        """Return what matters of the cluster."""
        with self._explained(self.cluster.name):
            return read_cluster(_to_body(self._client.get_cluster(name=self.cluster.path)))

    def list_pools(self) -> list[Pool]:
        """Return all node pools of the cluster, by name."""
        with self._explained(self.cluster.name):
            answer = self._client.list_node_pools(parent=self.cluster.path)
        return sorted((read_pool(_to_body(each)) for each in answer.node_pools), key=lambda pool: pool.name)

    def list_operations(self) -> list[Operation]:
        """Return the operations on the cluster and its pools that GKE remembers."""
        location = self.cluster.path.rpartition("/clusters/")[0]
        with self._explained(self.cluster.name):
            answer = self._client.list_operations(parent=location)
        mine = f"/clusters/{self.cluster.name}"
        return [
            read_operation(_to_body(each))
            for each in answer.operations
            if f"{mine}/" in f"{each.target_link}/"
        ]

    def create(self, body: Mapping[str, Any]) -> Operation:
        """Begin to create a pool; where that has begun already, return its operation."""
        from google.api_core.exceptions import AlreadyExists
        from google.cloud.container_v1 import NodePool

        name = str(body["name"])
        with self._explained(f"node pool {name}"):
            try:
                pool = NodePool.from_json(json.dumps(body))
                answer = self._client.create_node_pool(
                    parent=self.cluster.path, node_pool=pool, timeout=CALL_SECONDS
                )
            except AlreadyExists as error:
                return self._find_begun(name, "CREATE_NODE_POOL", error)
        return read_operation(_to_body(answer))

    def delete(self, name: str) -> Operation | None:
        """Begin to delete a pool; None where it is gone, and its operation where that has begun already."""
        from google.api_core.exceptions import FailedPrecondition, NotFound

        with self._explained(f"node pool {name}"):
            try:
                answer = self._client.delete_node_pool(
                    name=self.cluster.pool_path(name), timeout=CALL_SECONDS
                )
            except NotFound:
                return None
            except FailedPrecondition as error:
                return self._find_begun(name, "DELETE_NODE_POOL", error)
        return read_operation(_to_body(answer))

    def _find_begun(self, pool: str, kind: str, refusal: Exception) -> Operation:
        """Return the operation that runs on a pool already; raises the refusal where there is none."""
        for each in self.list_operations():
            if not each.is_done and (each.pool, each.kind) == (pool, kind):
                return each
        raise refusal

    @contextmanager
    def _explained(self, subject: str) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPICallError, RetryError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except GoogleAuthError as error:
            raise GkeCredentialsError(_first_line(error)) from error
        except RetryError as error:
            raise derive_error(subject, str(error.cause or error), code="UNAVAILABLE") from error
        except GoogleAPICallError as error:
            code = getattr(error.grpc_status_code, "name", "")
            raise derive_error(subject, error.message or str(error), code=code) from error


def _to_body(message: Any) -> dict[str, Any]:
    """Return the JSON form of a message: enums by name, fields that aren't set left out."""
    text = type(message).to_json(
        message, use_integers_for_enums=False, always_print_fields_with_no_presence=False
    )
    return dict(json.loads(text))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
