"""How a callable's process tells its end: a few words for the operator, the outcome for the client.

The words are written first without the outcome and again once that is kept, so that a process that is killed
in between has reported its end. Nothing here may fail: the end of the callable is the end of the process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from fray.errors import FrayError, PayloadStorageError
from fray.payload.outcome import (
    OUTCOME_LIMIT,
    EncodedOutcome,
    RankValue,
    encode_exception,
    encode_value,
    outcome_name,
)
from fray.payload.staging import STAGING_LIMIT, FsspecStorage, staged_outcome_url
from fray.payload.values.texts import cut, text_of, traceback_of, type_name
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.identity import Identity, IdentityError, current_identity
from fray.runtime.outcome_upload import OutcomePlace, upload_outcome
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import ENV_JOB_UID

__all__ = ["Reporter"]


class Reporter:
    """Tells the end of this process's callable, once.

    Args:
        outcome: file for the outcome; None: it goes to the API server, if this is a pod.
        termination_log: file for the operator's words; nothing is made where it isn't, as outside of pods.
        results: fsspec URL of a directory for a value that the API server has no room for.
    """

    def __init__(self, outcome: Path | None, termination_log: Path, *, results: str | None = None) -> None:
        self._outcome = outcome
        self._log = termination_log
        self._results = results

    def never_ran(self, error: FrayError) -> None:
        """Tell that the payload couldn't be run."""
        self._tell(TerminationMessage(Ending.NEVER_RAN, type(error).__name__, str(error)))

    def exited(self, error: SystemExit) -> None:
        """Tell that the callable ended the process."""
        self._tell(TerminationMessage(Ending.EXITED, "SystemExit", text_of(error.code)))

    def returned(self, value: object) -> None:
        """Tell that the callable returned; its value is kept if it is rank 0's, or a `RankValue`."""
        each_rank = isinstance(value, RankValue)
        if isinstance(value, RankValue):
            value = value.value
        message = TerminationMessage(Ending.RETURNED, type_name(value))
        self._tell(message)
        identity = _identity()
        if identity is not None and (identity.is_leader or each_rank):
            self._keep(message, lambda: self._encode(value), identity)

    def raised(self, error: BaseException, *, function: str) -> None:
        """Tell that the callable raised; the exception is kept."""
        texts = (type_name(error), cut(text_of(error)), cut(traceback_of(error)))
        message = TerminationMessage(Ending.RAISED, *texts)
        self._tell(message)
        identity = _identity()
        if identity is not None:
            process = _process(identity)
            self._keep(message, lambda: encode_exception(error, function=function, process=process), identity)

    def _keep(
        self, message: TerminationMessage, encode: Callable[[], EncodedOutcome], identity: Identity
    ) -> None:
        try:
            outcome = encode()
            if outcome.problem:
                _warn(f"what the callable left isn't kept whole: {outcome.problem}")
            if not self._store(outcome.data, identity):
                return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - pickling runs the value's own code
            _warn(f"what the callable left isn't kept: {text_of(error)}")
            return
        self._tell(
            TerminationMessage(
                message.ending, message.type, message.message, message.traceback, outcome.sha256
            )
        )

    def _encode(self, value: object) -> EncodedOutcome:
        """Return a value as bytes; what only the staging URL has room for is put there."""
        if self._results is None:
            return encode_value(value)
        outcome = encode_value(value, limit=STAGING_LIMIT)
        if len(outcome.data) > OUTCOME_LIMIT:
            try:
                FsspecStorage().write(staged_outcome_url(self._results, outcome.sha256), outcome.data)
            except PayloadStorageError as error:
                _warn(str(error))
                return encode_value(value)
        return outcome

    def _store(self, data: bytes, identity: Identity) -> bool:
        """Whether there is a place for the outcome. Raises `OSError`, `ValueError`, `OutcomeUploadError`."""
        if len(data) > OUTCOME_LIMIT:
            return True  # staged
        if self._outcome is not None:
            self._outcome.write_bytes(data)
            return True
        if not data:
            return True
        environ = os.environ  # noqa: TID251 - at the end of a job's process
        access, uid = ApiAccess.in_pod(environ), environ.get(ENV_JOB_UID)
        if access is None or not uid:
            return False
        name = outcome_name(job_uid=uid, attempt=identity.attempt, rank=identity.rank)
        upload_outcome(ApiClient(access), OutcomePlace(name, identity.job, uid, identity.attempt), data)
        return True

    def _tell(self, message: TerminationMessage) -> None:
        try:
            if self._log.exists():
                self._log.write_text(message.to_json(), encoding="utf-8")
        except OSError as error:
            _warn(f"{self._log} can't be written: {error.strerror}")


def _identity() -> Identity | None:
    try:
        return current_identity()
    except IdentityError as error:
        _warn(f"what the callable left isn't kept: {error}")
        return None


def _warn(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # the callable may have closed it
        sys.stderr.write(f"fray: {text}\n")


def _process(identity: Identity) -> str:
    if not identity.job:
        return "a process outside any job"
    return f"rank {identity.rank} of job {identity.job}, attempt {identity.attempt}"
