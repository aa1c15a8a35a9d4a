"""A kubeconfig with one context, for tests of which GKE cluster it leads to."""

from __future__ import annotations

from pathlib import Path

import yaml


def write_kubeconfig(path: Path, entry: str, *, name: str = "c") -> dict[str, str]:
    """Write one whose context `name` leads to a cluster's entry; return the variables that name it."""
    body = {
        "clusters": [{"name": entry, "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": entry, "user": "u"}}],
        "current-context": name,
    }
    path.write_text(yaml.safe_dump(body))
    return {"KUBECONFIG": str(path)}
