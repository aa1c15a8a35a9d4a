"""What travels between the launcher of a Ray job and its program: a folder goes there, lines come back."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fray.cluster.local.attempt import Workplace
from fray.cluster.local.environment import derive_base_environment
from fray.cluster.local.pods import LocalMachine
from fray.cluster.local.requests import with_this_python
from fray.errors import JobFileError
from fray.payload.callables import Payload
from fray.payload.chunks import split_payload
from fray.runtime.preparation import unpack_workspace
from fray.types import JobId, LogLine
from fray.wire.frayjob import FrayJob

__all__ = ["Bundle", "decode_line", "encode_line"]

JOB_FILE: Final = "job.json"
SECRETS_FILE: Final = "secrets.json"
PAYLOAD_FOLDER: Final = "payload"
WORKSPACE_FILE: Final = "workspace.tar.gz"


@dataclass(frozen=True)
class Bundle:
    """The folder that goes from a launcher to the program of its job."""

    path: Path

    def write(
        self,
        job: FrayJob,
        secrets: dict[str, str],
        payload: Payload | None = None,
        workspace: tuple[bytes, str] | None = None,
    ) -> None:
        """Fill it; a workspace is an archive and its digest."""
        (self.path / JOB_FILE).write_text(json.dumps(job.to_manifest()), encoding="utf-8")
        digest = "" if workspace is None else workspace[1]
        (self.path / SECRETS_FILE).write_text(json.dumps({"env": secrets, "workspace": digest}))
        if workspace is not None:
            (self.path / WORKSPACE_FILE).write_bytes(workspace[0])
        if payload is not None:
            (part,) = split_payload(payload.data, secret_name="payload", size=max(payload.size, 1))
            (self.path / PAYLOAD_FOLDER).mkdir()
            (self.path / PAYLOAD_FOLDER / part.key).write_bytes(part.data)

    def read(self) -> tuple[FrayJob, Workplace]:
        """Return the job, and where its processes run: in the workspace, which is unpacked."""
        try:
            job = FrayJob.from_manifest(json.loads((self.path / JOB_FILE).read_bytes()))
            beside = json.loads((self.path / SECRETS_FILE).read_bytes())
        except (OSError, ValueError) as error:
            raise JobFileError(str(self.path), f"is no folder of a launch: {error}") from error
        folder = self.path / "workspace"
        folder.mkdir(exist_ok=True)
        if (archive := self.path / WORKSPACE_FILE).exists():
            unpack_workspace(archive.read_bytes(), sha256=beside["workspace"], into=folder)
        payload = self.path / PAYLOAD_FOLDER
        return job, Workplace(
            LocalMachine(socket.gethostname(), uuid.uuid4()),
            with_this_python(derive_base_environment(os.environ)),  # noqa: TID251 - a process's entry
            working_dir=str(folder),
            secrets=beside["env"],
            payload=payload if payload.exists() else None,
        )


def encode_line(line: LogLine) -> str:
    """Return a line of a host as a line of the Ray job's log."""
    fields = {name: value for name, value in vars(line).items() if name != "job_id"}
    return json.dumps({"fray": fields}, default=datetime.isoformat)


def decode_line(job_id: JobId, text: str) -> LogLine | None:
    """Return what `encode_line` was given; None for what others print into the log."""
    try:
        fields: Any = json.loads(text)["fray"]
        at = None if fields["at"] is None else datetime.fromisoformat(fields["at"])
        return LogLine(job_id, **{**fields, "at": at})
    except (ValueError, KeyError, TypeError):
        return None
