"""Write container images as docker-archive files, without any container engine.

An image is a JSON config and one layer here; that is enough for programs that are one static file.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Image", "write_archive"]


@dataclass(frozen=True, kw_only=True)
class Image:
    """What goes into an image.

    Parameters: `name` with tag; `files` path in the image -> file on this machine, all executable; `links`
    path -> target of a symbolic link; `entrypoint`; `user` numeric, where a pod says `runAsNonRoot`.
    """

    name: str
    files: Mapping[str, Path]
    entrypoint: Sequence[str]
    links: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


def write_archive(image: Image, path: Path, *, architecture: str) -> Path:
    """Write `image` for `architecture` (Go's name) to the tar file `path`; returns it."""
    layer_path = path.with_suffix(".layer")
    try:
        with tarfile.open(layer_path, "w") as layer:
            _fill(layer, image)
        digest = _digest(layer_path)
        config = _build_config(image, architecture, digest)
        text = json.dumps(config).encode()
        name = hashlib.sha256(text).hexdigest()
        manifest = [{"Config": f"{name}.json", "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]}]
        with tarfile.open(path, "w") as archive:
            archive.add(layer_path, f"{digest}/layer.tar")
            _add_bytes(archive, f"{name}.json", text)
            _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
    finally:
        layer_path.unlink(missing_ok=True)
    return path


def _build_config(image: Image, architecture: str, layer_digest: str) -> dict[str, Any]:
    return {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "User": image.user,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created_by": "fray e2e"}],
    }


def _fill(layer: tarfile.TarFile, image: Image) -> None:
    folders = {str(parent) for path in (*image.files, *image.links) for parent in Path(path).parents}
    for folder in sorted(folders - {"/", "."}):
        _add_folder(layer, folder, 0o755)
    _add_folder(layer, "/tmp", 0o1777)
    for path, source in image.files.items():
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode = 0o755
        entry.size = source.stat().st_size
        with source.open("rb") as content:
            layer.addfile(entry, content)
    for path, target in image.links.items():
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type = tarfile.SYMTYPE
        entry.linkname = target
        layer.addfile(entry)


def _add_folder(layer: tarfile.TarFile, folder: str, mode: int) -> None:
    entry = tarfile.TarInfo(folder.lstrip("/"))
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    layer.addfile(entry)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
