"""A job's callable, or what became of it, doesn't come through: on its way into the pod, or back from it."""

from __future__ import annotations

from fray.errors.request import RequestError
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


class CallArgumentsError(RequestError, TypeError):
    """A callable can't be called with the arguments that a job is to give it."""

    message = "{function}() can't be called so: {problem}"
    next_step = (
        "Give it those that it takes: Entrypoint.from_callable(main, args=[...], kwargs={{...}}); an actor "
        "those of its constructor, and the rest by options=ActorOptions(...)."
    )

    function: str
    problem: str


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
        way = "the staging URL" if self.staged else "Secrets"
        largest = "; the largest parts: {parts:MB}" if self.parts else ""
        return self.fill(
            "{function} with its arguments takes {size:MB}, more than {limit:MB} for " + way + largest
        )

    @property
    def next_step(self) -> str:
        """How to make it smaller, or where it may be larger."""
        load = "Load large data inside the callable instead of passing it along"
        return f"{load}." if self.staged else f"{load}, or name a bucket for it: staging=gs://BUCKET/PATH."


class PayloadStorageError(SurroundingsError):
    """The storage behind a staging URL refuses what is needed of it; `url` is without credentials."""

    message = "payload at {url}: {problem}"
    next_step = (
        "Check the URL and the rights of the account that runs this, and that fsspec and the package of "
        "the URL's scheme (gcsfs, s3fs, adlfs) are installed here."
    )

    url: str
    problem: str


class PayloadError(RequestError):
    """A job's callable that must not or can't be run by the process that was started for it."""


class PayloadMissingError(PayloadError):
    """The payload, or a part of it, isn't where it should be."""

    message = "{place}: {problem}"
    next_step = "Launch the job again: its payload was deleted, or never written to its end."

    place: str
    problem: str


class PayloadChangedError(PayloadError):
    """The payload isn't the one that was launched: it was changed or cut, so nothing of it was run."""

    message = (
        "the payload ({size} bytes) has the sha256 {found}, not {expected}: it was changed or cut, and "
        "nothing of it was run"
    )
    next_step = (
        "Launch the job again; if this repeats, find out who else writes to its Secret or staging URL."
    )

    expected: str
    found: str
    size: int


class PayloadPythonError(PayloadError):
    """The payload was made by another minor version of Python, whose bytecode this one can't run."""

    message = "the callable was pickled by Python {made_by}, but this image has Python {here}"
    next_step = "Use an image with Python {made_by}, or launch the job from Python {here}."

    made_by: str
    here: str


class PayloadCodeError(PayloadError):
    """A module that the payload needs, or a name in it, isn't here; `missing` is the module, if one is."""

    message = "{function} needs code that this image lacks: {problem}"

    function: str
    problem: str
    missing: str = ""

    @property
    def next_step(self) -> str:
        """Where the code can come from."""
        package = self.missing.partition(".")[0] or "its package"
        return f"Add {package} to the job's packages (pip_packages), its workspace or its image."


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


class PayloadExitError(PayloadError):
    """Reading the payload ended the process: a module that it imports calls `sys.exit`.

    `code` is what that was called with, as text.
    """

    message = "a module that the callable needs ended the process while it was imported: sys.exit({code})"
    next_step = "Put what the module runs under `if __name__ == '__main__':`; its traceback is in the log."

    code: str


class OutcomeUploadError(SurroundingsError):
    """What became of a callable can't be handed over to the API server."""

    message = "the outcome can't be kept in ConfigMap {name}: {problem}"
    next_step = "The job's service account must be allowed to create and get configmaps, as the chart's is."

    name: str
    problem: str


class OutcomeUnreadableError(SurroundingsError):
    """What became of a callable can't be read here, so that only its text is known."""

    message = "the outcome can't be read: {problem}{text:?\n}"
    next_step = (
        "Read the job's logs for what it printed. What can be pickled in less than 1 MB comes back, "
        "and more where the cluster spec has staging=gs://BUCKET/PATH; write anything else to storage."
    )

    problem: str
    text: str = ""
