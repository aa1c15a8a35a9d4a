"""Pods of a cluster that keeps objects only: how programs of this machine reach it as they would in a pod."""

from __future__ import annotations

import uuid
from typing import Any

from fray.runtime.api.client import ApiAccess, ApiClient
from fray.testing import FakeCluster

__all__ = ["access_of_pod", "client_of_pod"]


def access_of_pod(cluster: FakeCluster) -> ApiAccess:
    """Return what a pod knows of its API server."""
    token = cluster.kubeconfig.with_name("token")
    # Pods ask at the same time, and none may find it empty.
    written = token.with_name(uuid.uuid4().hex)
    written.write_text("fake")
    written.replace(token)
    return ApiAccess(cluster.url, cluster.namespace, token)


def client_of_pod(cluster: FakeCluster, **options: Any) -> ApiClient:
    """Return the client that programs in pods use."""
    return ApiClient(access_of_pod(cluster), **options)
