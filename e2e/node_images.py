"""Which of the project's images each host of a test cluster gets, imported when they have changed.

An import takes about ten seconds a host, so a cluster remembers, in a ConfigMap of its own, what it has.
How images are built is `images`, how a host takes one in is `e2e.cluster`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.api import Api, ApiError
from e2e.cluster.errors import MachineError
from e2e.cluster.layout import Host, Layout
from e2e.cluster.provider import import_images

__all__ = ["NodeImages", "image_id", "wants"]

_MEMORY = "/api/v1/namespaces/kube-system/configmaps/fray-test-images"
_TPU = "google.com/tpu"


def wants(host: Host, image: str) -> bool:
    """Whether tests run pods of an image on a host: gigabytes are not carried to where nobody asks."""
    match image:
        case "fray-operator":
            return True  # pods of callables take Fray's runtime from it
        case "fray-digits":
            return _TPU in host.chips or not host.taints
        case "fray-ray":
            return not host.taints
        case _:
            return _TPU not in host.chips


def image_id(archive: Path) -> str:
    """The id of the image in a docker-archive tar. Raises MachineError for any other file."""
    try:
        with tarfile.open(archive) as tar:
            member = tar.extractfile("manifest.json")
            assert member is not None
            (entry,) = json.load(member)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise MachineError(f"{archive} is no image archive: {error}", "remove it and run again") from error
    return str(entry["Config"])


@dataclass(frozen=True)
class NodeImages:
    """The images on the hosts of one cluster."""

    api: Api
    layout: Layout

    def update(self, archives: Mapping[str, Path], *, progress: Callable[[str], None]) -> None:
        """Import each image, given by name, into the hosts that want it and have another.

        Raises MachineError, CommandError, ApiError.
        """
        for name, archive in archives.items():
            wanted = image_id(archive)
            had = self._remembered()
            outdated = [
                host
                for host in self.layout.hosts
                if wants(host, name) and had.get(f"{host.name}.{name}") != wanted
            ]
            if outdated:
                progress(f"importing {name} into {', '.join(host.name for host in outdated)}")
                import_images([archive], hosts=outdated)
                self._remember({f"{host.name}.{name}": wanted for host in outdated})

    def _remembered(self) -> Mapping[str, str]:
        answer = self.api.get(_MEMORY)
        if answer.status == 404:
            return {}
        if not answer.ok:
            raise ApiError("the memory of imported images can't be read", answer)
        data: Mapping[str, str] = answer.body.get("data", {})
        return data

    def _remember(self, ids: Mapping[str, str]) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "fray-test-images", "namespace": "kube-system"},
            "data": {**self._remembered(), **ids},
        }
        self.api.apply_object(manifest, field_manager="fray-e2e")
