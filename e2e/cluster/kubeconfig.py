"""The kubeconfig file of a test cluster, always with the one context name that tests accept."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.certificates import Pair, write_private

__all__ = ["CONTEXT", "build_kubeconfig", "write_kubeconfig"]

CONTEXT = "fray-test"
"""Context, cluster and user name; tests refuse every other context."""


def build_kubeconfig(
    *, url: str, authority: bytes, token: str | None = None, client: Pair | None = None
) -> dict[str, Any]:
    """A kubeconfig with everything inline: no path in it can go stale.

    Parameters: `authority` the PEM that signed the server, `token` a bearer token, `client` a client
    certificate; at least one of the last two.
    """
    if token is None and client is None:
        raise ValueError("a kubeconfig needs a token or a client certificate")
    user: dict[str, str] = {}
    if token is not None:
        user["token"] = token
    if client is not None:
        user["client-certificate-data"] = _base64(client.certificate)
        user["client-key-data"] = _base64(client.key)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CONTEXT, "cluster": {"server": url, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> Path:
    """Write it readable by its owner only, in one step; returns `path`."""
    partial = path.with_name(f".{path.name}.partial")
    write_private(partial, yaml.safe_dump(content, sort_keys=False).encode())
    return partial.replace(path)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
