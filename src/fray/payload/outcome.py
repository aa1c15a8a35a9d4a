r"""What became of a callable, as bytes that its client can check and read: a value or an exception.

    fray outcome 1\n | a line of JSON: who made it, and its text | pickle, empty where there is only text

No bytes at all are the value None, so that its digest says all and nothing has to be kept.

The client unpickles it only when it has the digest that the job's status tells. How it travels, and the few
words about it in the status, are elsewhere (`fray.runtime.outcome_upload`, `fray.termination`).
"""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass, field
from typing import Any

from fray.errors import OutcomeUnreadableError, RemoteTracebackError, UnpicklableExceptionError
from fray.payload.stamp import PYTHON, Stamp
from fray.payload.values.exceptions import decode_error, encode_error
from fray.payload.values.pickling import NotPicklableError, pickle_value
from fray.payload.values.texts import cut, text_of, traceback_of, type_name
from fray.payload.values.unpicklable import find_unpicklable_part

__all__ = [
    "OUTCOME_LIMIT",
    "EncodedOutcome",
    "Outcome",
    "RankValue",
    "decode_outcome",
    "encode_exception",
    "encode_value",
    "outcome_name",
]

OUTCOME_LIMIT = 1_000_000
"""Bytes of an outcome: a ConfigMap holds a MiB with its keys, and travels as base64."""
MAGIC = b"fray outcome 1\n"
_TEXT = 16 * 1024
"""Characters of each text beside the pickle."""
_NAME = 300
"""Characters of each name."""


@dataclass(frozen=True)
class EncodedOutcome:
    """An outcome as bytes; `problem` says why what came back isn't in it, empty where it is."""

    data: bytes = field(repr=False)
    problem: str = ""

    @property
    def sha256(self) -> str:
        """Digest of the bytes, which the client reads in the status."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What became of a callable: a value, or the error that it raised; `problem` where neither came back."""

    value: Any = field(default=None, repr=False)
    error: BaseException | None = None
    problem: str = ""

    def result(self) -> Any:
        """Return the value.

        Raises the callable's own exception, or `OutcomeUnreadableError` where the value didn't come back.
        """
        if self.error is not None:
            raise self.error
        if self.problem:
            raise OutcomeUnreadableError(self.problem)
        return self.value


@dataclass(frozen=True)
class RankValue:
    """What a callable returns for its client to read from every rank (`Cluster.outcomes`): the value in it.

    Any other value is kept of rank 0 alone.
    """

    value: Any


def outcome_name(*, job_uid: str, attempt: int, rank: int) -> str:
    """Return the name of the ConfigMap with the outcome of one process of a job."""
    return f"fray-outcome-{job_uid}-{attempt}-{rank}"


def encode_value(value: object, *, limit: int = OUTCOME_LIMIT) -> EncodedOutcome:
    """Return what a callable returned as at most `limit` bytes; without it, where it can't be pickled so."""
    if value is None:
        return EncodedOutcome(b"")
    fields = {"kind": "value", "type": type_name(value)[:_NAME]}
    try:
        body, found = pickle_value(value, None)
    except NotPicklableError as error:
        path, problem = find_unpicklable_part(value, "result", error.cause)
        return _without(fields, f"{path} can't be pickled: {problem}")
    if found:
        return _without(fields, "it holds a reference to an object or actor of the job's own pool")
    data = _header(fields) + body
    if len(data) > limit:
        return _without(fields, f"it takes {len(data):,} bytes; {limit:,} fit: write it to storage instead")
    return EncodedOutcome(data)


def encode_exception(
    error: BaseException, *, function: str, process: str, limit: int = OUTCOME_LIMIT
) -> EncodedOutcome:
    """Return what a callable raised as at most `limit` bytes; as text, where it can't be pickled so.

    `function` and `process` say to its reader where it was raised.
    """
    fields = {
        "kind": "exception",
        "type": type_name(error)[:_NAME],
        "text": cut(text_of(error), _TEXT),
        "traceback": cut(traceback_of(error), _TEXT),
        "function": function[:_NAME],
        "process": process[:_NAME],
    }
    data = _header(fields) + encode_error(error, task=function, worker=process)
    if len(data) > limit:
        return _without(fields, f"it takes {len(data):,} bytes; {limit:,} fit")
    return EncodedOutcome(data)


def decode_outcome(data: bytes, *, sha256: str) -> Outcome:
    """Return what became of a callable; `sha256` is what the job's status says.

    An exception has its type where that can be had here, and always a `RemoteTracebackError` as its cause.

    Raises:
        OutcomeUnreadableError: these aren't the bytes that the process left, or no outcome at all; nothing
            was unpickled.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise OutcomeUnreadableError(f"its sha256 is {found}, and the job's status says {sha256}")
    if not data:
        return Outcome()
    line, separator, body = data.removeprefix(MAGIC).partition(b"\n")
    try:
        fields = json.loads(line)
        stamp = Stamp.from_json(line)
        kind = fields["kind"]
    except (ValueError, KeyError, RecursionError) as error:
        raise OutcomeUnreadableError("it isn't an outcome") from error
    if not (data.startswith(MAGIC) and separator and kind in ("value", "exception")):
        raise OutcomeUnreadableError("it isn't an outcome")
    foreign = stamp.differences(Stamp.here()) if stamp.python != PYTHON else ""
    if kind == "exception":
        return Outcome(error=_read_error(fields, b"" if foreign else body))
    if foreign or not body:
        return Outcome(problem=foreign or str(fields.get("problem") or "it wasn't kept"))
    try:
        return Outcome(value=pickle.loads(body))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the value's own code runs
        differing = stamp.differences(Stamp.here())
        problem = f"{type(error).__qualname__}: {text_of(error)}"
        return Outcome(problem=f"{problem} ({differing})" if differing else problem)


def _read_error(fields: dict[str, Any], body: bytes) -> BaseException:
    if body:
        try:
            return decode_error(body)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001, S110 - its text says more than why it can't be read
            pass
    text = {name: str(fields.get(name, "")) for name in ("function", "type", "text", "traceback", "process")}
    error = UnpicklableExceptionError(text["function"], text["type"], text["text"], text["traceback"])
    error.__cause__ = RemoteTracebackError(text["process"], text["traceback"])
    return error


def _without(fields: dict[str, str], problem: str) -> EncodedOutcome:
    return EncodedOutcome(_header({**fields, "problem": problem[:_TEXT]}), problem)


def _header(fields: dict[str, str]) -> bytes:
    """Return all that stands before the pickle; in ASCII, so that halves of surrogate pairs come through."""
    line = {**json.loads(Stamp.here().to_json()), **fields}
    return MAGIC + json.dumps(line).encode() + b"\n"
