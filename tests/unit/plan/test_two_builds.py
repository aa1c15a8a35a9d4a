"""One build has a reason and a verdict more: this one reads the status it wrote, and that one goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fray
from fray.plan.raw_jobs import derive_expiry
from fray.plan.timestamps import parse_time
from fray.termination import Ending, TerminationMessage
from tests.unit.plan.one_pass import make_pass
from tests.unit.plan.verdict_situations.manifests import at, exited, jobset, pod, running

ROOT = Path(__file__).parents[3]
Manifest = dict[str, Any]
Pass = Callable[..., Manifest]
CODE = 99
MORE = {
    "vocabulary.py": {
        "class Reason(StrEnum):\n": '    NODE_MELTED = "NodeMelted"\n',
        "class VerdictKind(StrEnum):\n": '    MAINTENANCE = "Maintenance"\n',
    },
    "plan/reasons.py": {
        "REASONS: Final[Mapping[Reason, ReasonRow]] = {\n": (
            '    Reason.NODE_MELTED: _fails("its node melted", "cool it", charge=VerdictKind.MAINTENANCE,'
            f' unrun="melted", exit_codes=({CODE},)),\n'
        ),
    },
}
"""What the newer build has more, by file and by the line that it stands under."""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Pass:
    """Return the pass of the newer build."""
    source = tmp_path_factory.mktemp("newer")
    shutil.copytree(Path(fray.__file__).parent, source / "fray", ignore=shutil.ignore_patterns("__pycache__"))
    for name, added in MORE.items():
        text = (source / "fray" / name).read_text(encoding="utf-8")
        for line, below in added.items():
            assert text.count(line) == 1
            text = text.replace(line, line + below)
        (source / "fray" / name).write_text(text, encoding="utf-8")

    def run(job: Manifest, **question: Any) -> Manifest:
        command = [sys.executable, "-m", "tests.unit.plan.one_pass"]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        asked = json.dumps({"job": job, **question})
        done = subprocess.run(
            command, input=asked, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return run


MELTED = TerminationMessage(Ending.NEVER_RAN, "NodeMeltedError", "too hot").to_json()
ONE_RUNS = [pod(0, "Failed", exited(CODE, message=MELTED)), pod(1, "Running", running())]
NONE_RUNS = [ONE_RUNS[0], pod(1, "Failed", exited(143, after=2), deleted=1)]
ENDING: Manifest = {"now": at(1), "jobset": jobset(), "pods": ONE_RUNS}
ENDED: Manifest = {"now": at(9), "jobset": jobset("Failed"), "pods": NONE_RUNS}
LATER: Manifest = {"now": at(600), "jobset": None, "pods": []}


def build_job(status: Manifest, *, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    entrypoint = {"command": ["train"]}
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": "train", "namespace": "ml", "creationTimestamp": at(-3700), **metadata},
        "spec": {"replicas": 2, "entrypoint": entrypoint, "ttlSecondsAfterFinished": 60, **(spec or {})},
        "status": status,
    }


BEGUN = build_job(
    {
        "startTime": at(-3700),
        "attempts": [
            {"number": 1, "jobSet": "train-a1", "startTime": at(-3700), "runningTime": at(-3600)},
        ],
    }
)


@pytest.fixture(scope="module")
def ending(newer: Pass) -> Manifest:
    """Return the status of an attempt whose hosts are being ended for the new reason."""
    return dict(newer(BEGUN, **ENDING)["status"])


@pytest.fixture(scope="module")
def charged(newer: Pass, ending: Manifest) -> Manifest:
    """Return the status of an attempt that was charged to the new verdict; the next one runs not yet."""
    return dict(newer(build_job(ending, spec={"suspend": True}), **ENDED)["status"])


def words_of(status: Manifest) -> tuple[str | None, str | None]:
    (attempt,) = status["attempts"]
    return attempt.get("reason"), attempt.get("verdict")


def find(status: Manifest, kind: str) -> Manifest | None:
    return next((each for each in status["conditions"] if each["type"] == kind), None)


def test_the_newer_build_writes_words_that_this_one_does_not_know(
    ending: Manifest, charged: Manifest
) -> None:
    assert words_of(ending) == ("NodeMelted", None)
    assert words_of(charged) == ("NodeMelted", "Maintenance")
    assert "melted (exit code 99)" in ending["attempts"][0]["message"]


@pytest.mark.parametrize("stage", ["ending", "charged"])
def test_this_build_names_the_word_and_touches_nothing(stage: str, request: pytest.FixtureRequest) -> None:
    before = request.getfixturevalue(stage)
    seen = ENDING if stage == "ending" else ENDED
    made = make_pass(build_job(before), **seen)
    readable = find(made["status"], "StatusReadable")
    assert readable is not None
    assert readable["status"] == "False"
    assert ("NodeMelted" if stage == "ending" else "Maintenance") in readable["message"]
    assert made["action"] is None
    assert made["status"]["attempts"] == before["attempts"]


@pytest.mark.parametrize("stage", ["ending", "charged"])
@pytest.mark.parametrize(
    ("wish", "phase"),
    [
        ({"spec": {"stopped": True}}, "Stopped"),
        ({"spec": {"suspend": True}}, "Suspended"),
        ({"deletionTimestamp": at(5)}, "Stopped"),
    ],
    ids=["stop", "suspend", "deletion"],
)
def test_this_build_stops_suspends_and_deletes_it(
    stage: str, wish: Manifest, phase: str, request: pytest.FixtureRequest
) -> None:
    before = request.getfixturevalue(stage)
    if stage == "ending":
        made = make_pass(build_job(before, **wish), **ENDING)
        assert (made["action"], made["status"]["phase"]) == ("EndAttempt", "Stopping")
        before = made["status"]
    made = make_pass(build_job(before, **wish), **ENDED)
    assert (made["action"], made["status"]["phase"]) == (None, phase)
    if phase == "Stopped":
        assert derive_expiry(build_job(made["status"], **wish)) == parse_time(at(69))


@pytest.mark.parametrize("stage", ["ending", "charged"])
@pytest.mark.parametrize("suspended", [False, True], ids=["left alone", "suspended"])
def test_the_newer_build_goes_on_where_this_one_left_it(
    stage: str, *, suspended: bool, newer: Pass, request: pytest.FixtureRequest
) -> None:
    spec = {"suspend": suspended}
    status = request.getfixturevalue(stage)
    for seen in (ENDING, ENDED) if stage == "ending" else (ENDED,):
        status = make_pass(build_job(status, spec=spec), **seen)["status"]
    resumed = newer(build_job(status), **LATER)
    assert find(resumed["status"], "StatusReadable") is None
    first, second = resumed["status"]["attempts"]
    assert (first["reason"], first["verdict"]) == ("NodeMelted", "Maintenance")
    assert (second["number"], resumed["action"]) == (2, "StartAttempt")
