"""The user's code on its way to a cluster: which files it is, and the archive of them.

Only what a launcher needs: how an archive is unpacked in a pod is `fray.runtime.preparation`.
"""

from __future__ import annotations

from fray.cluster.workspace.archive import Archive, Archiver, WorkspaceLimits

__all__ = ["Archive", "Archiver", "WorkspaceLimits"]
