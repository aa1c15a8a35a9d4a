"""What a callable left for its reader is told as a traceback is, not as the JSON that it travelled in."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.gang import derive_gang
from fray.plan.pod_observation import derive_gang_observation
from fray.termination import Ending, TerminationMessage
from fray.testing import build_frayjob
from fray.vocabulary import EXIT_PAYLOAD_PYTHON, LABEL_COMPLETION_INDEX

AT = "2026-01-31T12:00:00Z"
JOBSET: dict[str, Any] = {"metadata": {"name": "train-a1"}, "spec": {}}
TRACEBACK = 'Traceback (most recent call last):\n  File "launch.py", line 3, in main\nValueError: no number\n'
RAISED = TerminationMessage(Ending.RAISED, "ValueError", "no number", TRACEBACK, "ab" * 32)
REFUSED = TerminationMessage(
    Ending.NEVER_RAN, "PayloadPythonError", "pickled by Python 3.12\nUse an image with it."
)


@pytest.mark.parametrize(
    ("code", "left", "told"),
    [
        (1, RAISED.to_json(), TRACEBACK.splitlines()),
        (
            EXIT_PAYLOAD_PYTHON,
            REFUSED.to_json(),
            ["PayloadPythonError: pickled by Python 3.12", "Use an image with it."],
        ),
        (1, '{"of": "the program"}', ['{"of": "the program"}']),
        (1, RAISED.to_json()[:-1], [RAISED.to_json()[:-1]]),
    ],
    ids=["an exception", "a payload that never ran", "a program's own JSON", "cut by others"],
)
def test_the_last_words_of_a_host_are_what_was_told(code: int, left: str, told: list[str]) -> None:
    metadata = {"name": "pod-0", "creationTimestamp": AT, "labels": {LABEL_COMPLETION_INDEX: "0"}}
    ended = {"exitCode": code, "reason": "Error", "finishedAt": AT, "message": left}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    observed = derive_gang_observation(
        derive_gang(build_frayjob().spec), JOBSET, [{"metadata": metadata, "spec": {}, "status": status}]
    )
    assert list(observed.hosts[0].log_tail) == told
