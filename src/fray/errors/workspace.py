"""A job's code or packages don't come into its pods: on their way there, or when they are installed."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.request import RequestError
from fray.errors.sizes import format_parts, format_size

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


@dataclass(eq=False)
class WorkspaceError(RequestError):
    """The user's code can't be sent, or what came of it into a pod isn't what was sent."""


@dataclass(eq=False)
class WorkspaceTooLargeError(WorkspaceError):
    """A workspace is larger than its way into the cluster allows.

    `size` and `limit` are bytes, of the archive or, where that wasn't made, of the files; `parts` the largest
    files with their bytes; `way` is what the limit is of.
    """

    directory: str
    size: int
    limit: int
    parts: tuple[tuple[str, int], ...]
    way: str

    @property
    def message(self) -> str:
        """The directory, its size, the limit and what takes the room."""
        return (
            f"workspace {self.directory} takes {format_size(self.size)}, more than {format_size(self.limit)} "
            f"for {self.way}; the largest files: {format_parts(self.parts)}"
        )

    @property
    def next_step(self) -> str:
        """How to make it smaller, or do without it."""
        return (
            "Name what isn't code in .gitignore, give a smaller directory as workspace=..., or an image that "
            "has the code as docker_image=...; a cluster spec with staging=gs://BUCKET/PATH takes more."
        )


@dataclass(eq=False)
class WorkspaceLinkError(WorkspaceError):
    """A symbolic link leads out of the workspace, where pods have nothing."""

    directory: str
    link: str
    target: str

    @property
    def message(self) -> str:
        """The link and where it leads."""
        return f"workspace {self.directory}: {self.link} is a link to {self.target}, outside of it"

    @property
    def next_step(self) -> str:
        """What to do with the link."""
        return "Copy what it leads to, take it away, or name it in .gitignore."


@dataclass(eq=False)
class WorkspaceUnreadableError(WorkspaceError):
    """A workspace can't be read: by the launcher a file of it, or in a pod its archive."""

    place: str
    problem: str

    @property
    def message(self) -> str:
        """What can't be read, and why."""
        return f"workspace {self.place}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return "It must be readable for whoever launches the job, and in the pod a tar that nobody changed."


@dataclass(eq=False)
class WorkspaceMissingError(WorkspaceError):
    """In a pod: the workspace's archive isn't where it should be."""

    place: str
    problem: str

    @property
    def message(self) -> str:
        """The place and what is missing there."""
        return f"workspace at {self.place}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return "Launch the job again: its workspace was deleted, or never written to its end."


@dataclass(eq=False)
class WorkspaceChangedError(WorkspaceError):
    """In a pod: the workspace's archive isn't the one that was launched, so nothing of it was unpacked."""

    expected: str
    found: str
    size: int

    @property
    def message(self) -> str:
        """Both digests, and the bytes that were found."""
        return (
            "the workspace was changed or cut, and nothing of it was unpacked: "
            f"{self.size} bytes with the sha256 {self.found}, not {self.expected}"
        )

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return "Launch the job again; if this repeats, find out who else writes to its Secret or staging URL."


@dataclass(eq=False)
class PackagesError(RequestError):
    """The packages of a job can't be installed in its pod."""


@dataclass(eq=False)
class PackagesNotInstalledError(PackagesError):
    """Uv couldn't find or install packages; `problem` is what it said at its end."""

    packages: tuple[str, ...]
    problem: str

    @property
    def message(self) -> str:
        """What was to be installed, and uv's own words."""
        # Of each line a status shows the beginning, so what was asked for must not push the reason out.
        return f"{', '.join(self.packages)} can't be installed:\n{self.problem}"

    @property
    def next_step(self) -> str:
        """Where packages come from, and what to do about them."""
        return (
            "Correct the names, or let the pods reach the index: UV_INDEX_URL in env_vars names another one. "
            "What many jobs need belongs in an image."
        )


@dataclass(eq=False)
class PythonNotWritableError(PackagesError):
    """The image's Python can't be written to, so nothing can be installed into it."""

    directory: str
    user: int

    @property
    def message(self) -> str:
        """The directory, and the user that may not write there."""
        return f"packages can't be installed: user {self.user} can't write to {self.directory} of this image"

    @property
    def next_step(self) -> str:
        """The two ways out."""
        return "Install them in the image, or let the image's user own its Python environment."
