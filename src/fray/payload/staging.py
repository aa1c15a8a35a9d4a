"""What is too large for objects of Kubernetes: objects behind an fsspec URL, named by their digest.

They are payloads, workspaces and outcomes. Each is written once. Credentials aren't part of the URL: file
systems find those of the account that a pod runs as, or take them from variables. fsspec is imported when it
is needed: an image needs it, and the package of the URL's scheme, only for these. Nothing deletes them: a
lifecycle rule of the bucket does, after the longest time a job may take.
"""

from __future__ import annotations

from typing import Any, Protocol

from fray.credentials import redacted
from fray.errors import PayloadMissingError, PayloadStorageError

__all__ = [
    "STAGING_LIMIT",
    "FsspecStorage",
    "WritableStorage",
    "staged_outcome_url",
    "staged_url",
    "staged_workspace_url",
]

STAGING_LIMIT = 1 << 30
"""Bytes of a staged object: who reads it reads it into memory."""


class WritableStorage(Protocol):
    """Where objects are put under URLs."""

    def write(self, url: str, data: bytes) -> None:
        """Keep an object, unless one of this size is there. Raises `PayloadStorageError`."""
        ...


def staged_url(base: str, sha256: str) -> str:
    """Return where the payload with this digest lies behind a staging URL such as `gs://bucket/fray`."""
    return f"{base.rstrip('/')}/payloads/{sha256}"


def staged_workspace_url(base: str, sha256: str) -> str:
    """Return where the archive of a workspace with this digest lies behind a staging URL."""
    return f"{base.rstrip('/')}/workspaces/{sha256}.tar.gz"


def staged_outcome_url(base: str, sha256: str) -> str:
    """Return where the outcome with this digest lies behind a staging URL."""
    return f"{base.rstrip('/')}/outcomes/{sha256}"


class FsspecStorage:
    """Objects in whatever fsspec knows: buckets, a shared directory (`file:///...`), memory."""

    def write(self, url: str, data: bytes) -> None:
        """Keep an object, unless one of this size is there: it was cut off there, if it has another size.

        Raises `PayloadStorageError`.
        """
        files, path = self._open(url)
        try:
            if files.exists(path) and files.size(path) == len(data):
                return
            files.makedirs(files._parent(path), exist_ok=True)
            files.pipe_file(path, data)
        except Exception as error:
            raise PayloadStorageError(redacted(url), _describe(error)) from error

    def read(self, url: str) -> bytes:
        """Return an object. Raises `PayloadMissingError` or `PayloadStorageError`."""
        files, path = self._open(url)
        try:
            data = files.cat_file(path)
        except FileNotFoundError as error:
            raise PayloadMissingError(redacted(url), "no payload is there") from error
        except Exception as error:
            raise PayloadStorageError(redacted(url), _describe(error)) from error
        return bytes(data)

    def _open(self, url: str) -> tuple[Any, str]:
        try:
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415 - see the module's docstring

            files, path = fsspec.core.url_to_fs(url)
        except Exception as error:
            raise PayloadStorageError(redacted(url), _describe(error)) from error
        return files, path


def _describe(error: Exception) -> str:
    """File systems raise what they like; its text may hold the URL's credentials."""
    return redacted(f"{type(error).__qualname__}: {error}")
