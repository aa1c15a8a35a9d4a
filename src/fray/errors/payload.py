"""A job's callable, or what became of it, doesn't come through: on its way into the pod, or back from it."""

from __future__ import annotations

from dataclasses import dataclass

from fray.errors.request import RequestError
from fray.errors.sizes import format_parts, format_size
from fray.errors.surroundings import SurroundingsError

__all__ = [
    "CallArgumentsError",
    "OutcomeUnreadableError",
    "OutcomeUploadError",
    "PayloadChangedError",
    "PayloadCodeError",
    "PayloadError",
    "PayloadExitError",
    "PayloadMissingError",
    "PayloadPythonError",
    "PayloadStorageError",
    "PayloadTooLargeError",
    "PayloadUnreadableError",
]


@dataclass(eq=False)
class CallArgumentsError(RequestError, TypeError):
    """A callable can't be called with the arguments that a job is to give it."""

    function: str
    problem: str

    @property
    def message(self) -> str:
        """The callable and what Python says about the call."""
        return f"{self.function}() can't be called so: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where the arguments are given."""
        return "Give it those that it takes: Entrypoint.from_callable(main, args=[...], kwargs={...})."


@dataclass(eq=False)
class PayloadTooLargeError(RequestError):
    """A callable with its arguments is larger than its way into the cluster allows.

    `size` and `limit` are bytes, `parts` the largest parts with their bytes, and `staged` whether the limit
    is that of the staging URL rather than of Secrets.
    """

    function: str
    size: int
    limit: int
    parts: tuple[tuple[str, int], ...]
    staged: bool

    @property
    def message(self) -> str:
        """The callable, its size, the limit and what takes the room."""
        largest = f"; the largest parts: {format_parts(self.parts)}" if self.parts else ""
        way = "the staging URL" if self.staged else "Secrets"
        return (
            f"{self.function} with its arguments takes {format_size(self.size)}, more than "
            f"{format_size(self.limit)} for {way}{largest}"
        )

    @property
    def next_step(self) -> str:
        """How to make it smaller, or where it may be larger."""
        load = "Load large data inside the callable instead of passing it along"
        return f"{load}." if self.staged else f"{load}, or name a bucket for it: staging=gs://BUCKET/PATH."


@dataclass(eq=False)
class PayloadStorageError(SurroundingsError):
    """The storage behind a staging URL refuses what is needed of it; `url` is without credentials."""

    url: str
    problem: str

    @property
    def message(self) -> str:
        """The URL and what its file system says."""
        return f"payload at {self.url}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return (
            "Check the URL and the rights of the account that runs this, and that fsspec and the package of "
            "the URL's scheme (gcsfs, s3fs, adlfs) are installed here."
        )


@dataclass(eq=False)
class PayloadError(RequestError):
    """A job's callable that must not or can't be run by the process that was started for it."""


@dataclass(eq=False)
class PayloadMissingError(PayloadError):
    """The payload, or a part of it, isn't where it should be."""

    place: str
    problem: str

    @property
    def message(self) -> str:
        """The place and what is missing there."""
        return f"{self.place}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return "Launch the job again: its payload was deleted, or never written to its end."


@dataclass(eq=False)
class PayloadChangedError(PayloadError):
    """The payload isn't the one that was launched: it was changed or cut, so nothing of it was run."""

    expected: str
    found: str
    size: int

    @property
    def message(self) -> str:
        """Both digests, and the bytes that were found."""
        return (
            f"the payload ({self.size} bytes) has the sha256 {self.found}, not {self.expected}: "
            "it was changed or cut, and nothing of it was run"
        )

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return "Launch the job again; if this repeats, find out who else writes to its Secret or staging URL."


@dataclass(eq=False)
class PayloadPythonError(PayloadError):
    """The payload was made by another minor version of Python, whose bytecode this one can't run."""

    made_by: str
    here: str

    @property
    def message(self) -> str:
        """Both versions."""
        return f"the callable was pickled by Python {self.made_by}, but this image has Python {self.here}"

    @property
    def next_step(self) -> str:
        """Which side to change."""
        return f"Use an image with Python {self.made_by}, or launch the job from Python {self.here}."


@dataclass(eq=False)
class PayloadCodeError(PayloadError):
    """A module that the payload needs, or a name in it, isn't here; `missing` is the module, if one is."""

    function: str
    problem: str
    missing: str = ""

    @property
    def message(self) -> str:
        """What was to be run and what it lacks."""
        return f"{self.function} needs code that this image lacks: {self.problem}"

    @property
    def next_step(self) -> str:
        """Where the code can come from."""
        package = self.missing.partition(".")[0] or "its package"
        return f"Add {package} to the job's packages (pip_packages), its workspace or its image."


@dataclass(eq=False)
class PayloadUnreadableError(PayloadError):
    """The payload is the one that was launched, and it can't be read here."""

    problem: str
    versions: str = ""

    @property
    def message(self) -> str:
        """What went wrong, and which versions differ."""
        return f"the payload can't be read: {self.problem}" + (f" ({self.versions})" if self.versions else "")

    @property
    def next_step(self) -> str:
        """What to do about it."""
        if self.versions:
            return "Use the same versions in the image and where the job is launched."
        return "Run pickle.loads(cloudpickle.dumps(...)) on the callable's arguments: one fails to come back."


@dataclass(eq=False)
class PayloadExitError(PayloadError):
    """Reading the payload ended the process: a module that it imports calls `sys.exit`.

    `code` is what that was called with, as text.
    """

    code: str

    @property
    def message(self) -> str:
        """What happened before the callable could be called."""
        return (
            f"a module that the callable needs ended the process while it was imported: sys.exit({self.code})"
        )

    @property
    def next_step(self) -> str:
        """How to let a script be imported."""
        return "Put what the module runs under `if __name__ == '__main__':`; its traceback is in the log."


@dataclass(eq=False)
class OutcomeUploadError(SurroundingsError):
    """What became of a callable can't be handed over to the API server."""

    name: str
    problem: str

    @property
    def message(self) -> str:
        """The ConfigMap that was to hold it, and why it doesn't."""
        return f"the outcome can't be kept in ConfigMap {self.name}: {self.problem}"

    @property
    def next_step(self) -> str:
        """What to look at."""
        return "The job's service account must be allowed to create and get configmaps, as the chart's is."


@dataclass(eq=False)
class OutcomeUnreadableError(SurroundingsError):
    """What became of a callable can't be read here, so that only its text is known."""

    problem: str
    text: str = ""

    @property
    def message(self) -> str:
        """Why, and what is known all the same."""
        return f"the outcome can't be read: {self.problem}" + (f"\n{self.text}" if self.text else "")

    @property
    def next_step(self) -> str:
        """How to see it, or to get it the next time."""
        return (
            "Read the job's logs for what it printed. What can be pickled in less than 1 MB comes back; the "
            "callable can write anything else to storage."
        )
