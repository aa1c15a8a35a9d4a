"""A job's code or packages don't come into its pods: on their way there, or when they are installed."""

from __future__ import annotations

from fray.errors.request import RequestError

__all__ = [
    "PackagesError",
    "PackagesNotInstalledError",
    "PythonNotWritableError",
    "WorkspaceChangedError",
    "WorkspaceError",
    "WorkspaceLinkError",
    "WorkspaceMissingError",
    "WorkspaceTooLargeError",
    "WorkspaceUnreadableError",
]


class WorkspaceError(RequestError):
    """The user's code can't be sent, or what came of it into a pod isn't what was sent."""


class WorkspaceTooLargeError(WorkspaceError):
    """A workspace is larger than its way into the cluster allows.

    `size` and `limit` are bytes, of the archive or, where that wasn't made, of the files; `parts` the largest
    files with their bytes; `way` is what the limit is of.
    """

    message = (
        "workspace {directory} takes {size:MB}, more than {limit:MB} for {way}; the largest files: {parts:MB}"
    )
    next_step = (
        "Name what isn't code in .gitignore, give a smaller directory as workspace=..., or an image that "
        "has the code as docker_image=...; a cluster spec with staging=gs://BUCKET/PATH takes more."
    )

    directory: str
    size: int
    limit: int
    parts: tuple[tuple[str, int], ...]
    way: str


class WorkspaceLinkError(WorkspaceError):
    """A symbolic link leads out of the workspace, where pods have nothing."""

    message = "workspace {directory}: {link} is a link to {target}, outside of it"
    next_step = "Copy what it leads to, take it away, or name it in .gitignore."

    directory: str
    link: str
    target: str


class WorkspaceUnreadableError(WorkspaceError):
    """A workspace can't be read: by the launcher a file of it, or in a pod its archive."""

    message = "workspace {place}: {problem}"
    next_step = (
        "It must be readable for the user who launches the job, and in the pod a tar that nobody changed."
    )

    place: str
    problem: str


class WorkspaceMissingError(WorkspaceError):
    """In a pod: the workspace's archive isn't where it should be."""

    message = "workspace at {place}: {problem}"
    next_step = "Launch the job again: its workspace was deleted, or never written to its end."

    place: str
    problem: str


class WorkspaceChangedError(WorkspaceError):
    """In a pod: the workspace's archive isn't the one that was launched, so nothing of it was unpacked."""

    message = (
        "the workspace was changed or cut, and nothing of it was unpacked: {size} bytes with the sha256 "
        "{found}, not {expected}"
    )
    next_step = (
        "Launch the job again; if this repeats, find out who else writes to its Secret or staging URL."
    )

    expected: str
    found: str
    size: int


class PackagesError(RequestError):
    """The packages of a job can't be installed in its pod."""


class PackagesNotInstalledError(PackagesError):
    """Uv couldn't find or install packages; `problem` is what it said at its end."""

    message = "{packages:list} can't be installed:\n{problem}"
    next_step = (
        "Correct the names, or let the pods reach the index: UV_INDEX_URL in env_vars names another one. "
        "What many jobs need belongs in an image."
    )

    packages: tuple[str, ...]
    problem: str


class PythonNotWritableError(PackagesError):
    """The image's Python can't be written to, so nothing can be installed into it."""

    message = "packages can't be installed: user {user} can't write to {directory} of this image"
    next_step = "Install them in the image, or let the image's user own its Python environment."

    directory: str
    user: int
